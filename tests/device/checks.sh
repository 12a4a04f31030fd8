#!/usr/bin/env bash
# What run.sh and run_many.sh share: unpacked binaries, checks with a time limit, and a table of them.
# Sourced by them, in the root of the checkout.
# shellcheck shell=bash disable=SC2034  # its readers are they
set -euo pipefail

readonly perigee=.device/programs/client/cli/perigee
readonly layer=tests/testdata/moe_layer_e64_k8.safetensors
readonly cuda_only='--gtest_filter=*cuda*:*Cuda*'
table=()
failed=0

# prepare LOGS: unpacks what pack.sh has packed; logs go to LOGS, a temporary directory if empty.
prepare() {
  if [[ ! -f .device/device.tar.xz ]]; then
    printf '%s: no .device/device.tar.xz: run tests/device/pack.sh where there is Bazel\n' \
      "${0##*/}" >&2
    exit 2
  fi
  rm -rf .device/traces  # not every archive has them
  tar xJf .device/device.tar.xz -C .device
  ln -sfn "$PWD/tests" .device/programs/tests
  logs=${1:-$(mktemp -d)}
  mkdir -p "$logs"
  logs=$(cd "$logs" && pwd)
  # A kernel that is loaded at its first launch would wait for kernels that wait for its rank.
  export CUDA_MODULE_LOADING=EAGER
}

# check NAME LIMIT COMMAND...: runs it with a time limit and notes the result. The log's path is in
# $log afterwards.
check() {
  local name=$1 limit=$2
  shift 2
  log="$logs/${name//[^a-zA-Z0-9]/_}.log"
  printf '== %s\n' "$name"
  local start=$SECONDS status=0
  timeout --kill-after=5 "$limit" "$@" >"$log" 2>&1 || status=$?
  # Where CUDA does not start, a binary that skips everything has shown nothing.
  if grep -qE '^\[  SKIPPED \] .*(RunsWhereThereIsADevice|CudaRunTest|LocalClientTest)' "$log"; then status=77; fi
  local result=pass
  if ((status != 0)); then
    result="FAIL ($status)"
    failed=1
    tail -n 30 "$log" | cut -c1-300
  fi
  local note
  note=$(grep -hoE '^\[  (PASSED|SKIPPED) +\] .* tests?|MEASURED.*|ERROR SUMMARY: .*|RACECHECK SUMMARY: .*|^PASS.*|relative error.*' "$log" |
    grep -v listed | sort -u | tail -n 3 | paste -sd ';' || true)
  note_result "$name" "$result" "$((SECONDS - start))" "${note:0:110}"
}

# measure_paths RANKS PROCESSES ARGUMENT...: what the paths of rows take on RANKS workers, in PROCESSES
# clusters one after the other; lines of JSON go to paths.jsonl. Routes are of a skew, for which a call
# measures four shapes, or of a layer of a trace, whose experts they are.
measure_paths() {
  local ranks=$1 processes=$2 what routes process trace
  shift 2
  local -a from measured
  # shellcheck disable=SC2054  # the commas are in the shapes
  local shapes=(--shape S8192,H3584,K8,E896 --shape S8192,H3584,K16,E896
    --shape S8192,H7168,K8,E896 --shape S8192,H7168,K16,E896)
  # shellcheck disable=SC2054
  local traced=(--shape S4096,H7168,K8,E256 --shape S8192,H3584,K8,E256)
  for ((process = 1; process <= processes; ++process)); do
    for routes in ${PERIGEE_PATH_ROUTES:-0.1 1 5 e256_k8:1 e256_k8_early:2}; do
      from=(--skew "$routes")
      measured=("${shapes[@]}")
      if [[ $routes == *:* ]]; then
        trace=.device/traces/${routes%:*}.safetensors
        if [[ ! -f $trace ]]; then
          ((process > 1)) || note_result "paths of $routes" "left out" 0 "packed without --traces"
          continue
        fi
        from=(--trace "$trace" --layer "${routes#*:}")
        measured=("${traced[@]}")
      fi
      for what in direct pull; do
        check "$what, $ranks ranks, $routes, process $process" 120 "$perigee" bench "$what" \
          "${measured[@]}" "${from[@]}" --seed "$process" --backend cuda --ranks "$ranks" "$@" \
          --inputs 1 --warmup 10 --iterations "${PERIGEE_PATH_ITERATIONS:-100}" \
          --calibrate "$logs/path_table.jsonl" --json
        sed -n '/^{$/,/^}$/s/^ *//p' "$log" | paste -sd '' | grep . >>"$logs/paths.jsonl" || true
      done
    done
  done
}

# What they have measured, as tables.
show_paths() {
  check "table of paths" 60 python3 tests/bench/path_table.py "$logs/paths.jsonl"
  cp "$log" "$logs/paths.md"
  cat "$logs/paths.md"
}

# note_result NAME RESULT SECONDS NOTE: a row of the table.
note_result() {
  table+=("$(printf '%-34s %-10s %4ds  %s' "$1" "$2" "$3" "$4")")
}

# The table, also in summary.txt of the logs; exit status 1 where a check failed.
finish() {
  printf '\nLogs: %s\n\n' "$logs"
  {
    printf '%-34s %-10s %5s  %s\n' what result time notes
    printf '%s\n' "${table[@]}"
  } | tee "$logs/summary.txt"
  exit "$failed"
}
