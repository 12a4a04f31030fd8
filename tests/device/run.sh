#!/usr/bin/env bash
# Runs everything that needs a GPU, from the binaries that tests/device/pack.sh has put into .device/.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/device/run.sh [--logs DIR] [SECTION]...

Needs CUDA and nothing else. Sections, all of them but paths by default:
  device     owners of memory, streams and events; NCCL and NVML
  contract   the contract suite on the CUDA backend, ranks as streams of one process;
             PERIGEE_RANDOM_GROUPS random groups (default 1000; 500 where each goes several ways)
  sanitizer  compute-sanitizer memcheck and racecheck on small shapes
  layer      a coordinator and 8 worker processes that share the GPU under MPS run a trained layer
  bench      planning, dispatch, combine, prefetch and reduce of 8 workers that share the GPU under
             MPS, with random routes and, where pack.sh was given --traces, recorded ones; then each
             layer of those; then a layer with fewer slots than experts of a rank
  paths      what a producer and the dispatch of its rows take by each path, and owner-pull beside
             dispatch: S 8192, E 896, H 3584 and 7168, K 8 and 16, skew 0.1, 1 and 5; and with routes
             of the traces, E 256. PERIGEE_PATH_ROUTES (0.1 1 5 e256_k8:1 e256_k8_early:2);
             PERIGEE_PATH_RUNS (4:3 8:1) has RANKS:PROCESSES, so many fresh clusters of so many workers
             that share the GPU under MPS; PERIGEE_PATH_ITERATIONS (100). Not among those that run by
             default
  attach     local clients of workers that share the GPU: PyTorch against its own index operations,
             with MPS and without; times of the command ring and of a step through it
  loss       ranks that are killed, stopped or never arrive, a process each, without MPS
Prints a table last; exit status 0: everything passed. Logs go to DIR (default: a temporary one):
plain files only, one for each check, summary.txt with the table, and bench.jsonl, to which bench adds
a line of JSON for each of its calls (keys: docs/cli.md). tests/bench/plot_skew.py draws from it. paths
adds to paths.jsonl, from which tests/bench/path_table.py makes paths.md, and to path_table.jsonl, by
which a selector chooses.
TEXT
}

logs=""
sections=()
while (($# > 0)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --logs)
      logs=${2:?--logs needs a directory}
      shift
      ;;
    device | contract | sanitizer | layer | bench | paths | attach | loss) sections+=("$1") ;;
    *) printf 'run.sh: unknown argument: %s\n' "$1" >&2 && usage >&2 && exit 2 ;;
  esac
  shift
done
((${#sections[@]} > 0)) || sections=(device contract sanitizer layer bench attach loss)

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/device/checks.sh
source tests/device/checks.sh
prepare "$logs"

# Its pipes and sockets are no logs.
start_mps() {
  CUDA_MPS_PIPE_DIRECTORY=$(mktemp -d)
  export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY=$logs/mps_log
  mkdir -p "$CUDA_MPS_LOG_DIRECTORY"
  nvidia-cuda-mps-control -d
}
stop_mps() {
  [[ -n ${CUDA_MPS_PIPE_DIRECTORY:-} ]] || return 0
  echo quit | nvidia-cuda-mps-control || true
  rm -rf "$CUDA_MPS_PIPE_DIRECTORY"
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

trap stop_mps EXIT

run_device() {
  local test
  for test in device_info device_place cuda_status driver_api handle_kinds stream caller_stream libraries device_memory; do
    check "$test" 60 ".device/tests/${test}_test"
  done
}

run_contract() {
  local test groups
  for test in queued polled dispatch combine experts gradients lifetimes aliases disagreement lost_rank \
    refusals publication publication_lifetimes producer source source_damage source_lifetimes \
    rings rings_lifetimes rings_capture weight_formats layer transport; do
    case $test in
      publication | producer | source | rings) groups=500 ;;
      *) groups=1000 ;;
    esac
    check "contract $test" 400 env PERIGEE_RANDOM_GROUPS="${PERIGEE_RANDOM_GROUPS:-$groups}" \
      ".device/tests/${test}_test" "$cuda_only"
  done
}

run_sanitizer() {
  local test tool
  # The probe for fabric handles is a call that fails on purpose.
  local sanitizer=(compute-sanitizer --report-api-errors no --error-exitcode 9)
  export PERIGEE_RANDOM_GROUPS=40
  for test in dispatch combine experts gradients; do
    check "memcheck $test" 120 "${sanitizer[@]}" --tool memcheck \
      ".device/tests/${test}_test" '--gtest_filter=*cuda_one_mapping*'
  done
  # Under racecheck kernels run one at a time, and under both tools a launch behind many queued ones
  # holds up the launches of other threads: only ranks that wait for nobody come to an end.
  export PERIGEE_RANDOM_GROUPS=50 PERIGEE_MAX_RANKS=1
  for tool in memcheck racecheck; do
    check "$tool queued" 120 "${sanitizer[@]}" --tool "$tool" \
      .device/tests/queued_test '--gtest_filter=*cuda_one_mapping*'
  done
  for test in dispatch combine; do
    check "racecheck $test" 120 "${sanitizer[@]}" --tool racecheck \
      ".device/tests/${test}_test" '--gtest_filter=*RandomGroups/cuda_one_mapping*'
  done
  unset PERIGEE_RANDOM_GROUPS PERIGEE_MAX_RANKS
}

run_layer() {
  start_mps
  check "moe-layer, 8 workers, MPS" 120 "$perigee" run moe-layer --input "$layer" \
    --backend cuda --shared-gpu --iterations 20
  check "never arrives, MPS" 120 env PERIGEE_DEVICE_SLACK_MS=1 .device/tests/rank_loss_test \
    '--gtest_filter=*NeverArrives*cuda*'
  stop_mps
  check "moe-layer, 8 workers, no MPS" 180 "$perigee" run moe-layer --input "$layer" \
    --backend cuda --shared-gpu
}

# bench NAME LIMIT ARGUMENT...: a call on 8 workers, its JSON as a table and as a line of bench.jsonl.
bench() {
  local name=$1 limit=$2
  shift 2
  check "$name" "$limit" "$perigee" bench "$@" --backend cuda --shared-gpu --ranks 8 \
    --sms 16 --local-sms 16 --json
  local json
  json=$(sed -n '/^{$/,/^}$/s/^ *//p' "$log")
  [[ -n $json ]] || return 0
  paste -sd '' <<<"$json" >>"$logs/bench.jsonl"
  awk -F '": ' '
    { key = $1; value = $2; gsub(/"/, "", key); gsub(/^"|"?,?$/, "", value); got[key] = value }
    key == "own_gb_per_s" { printf "%s   copy: %.0f GB/s\n", got["shape"], value }
    key == "output_bytes_per_rank" { printf "  %-28s %9.1f MiB  ", got["outputs"], value / 1048576 }
    key == "max_us" && "outputs" in got {
      printf "%9.1f us  %9.1f-%.1f us\n", got["median_us"], got["p25_us"], got["p75_us"]
    }
    key == "floor_over_median" {
      printf "  %-28s %9.1f us  %9.1f-%.1f us  ",
        got["operation"], got["median_us"], got["p25_us"], got["p75_us"]
      if (value == "null") print "-"; else printf "floor %9.1f us  %.3f\n", got["floor_us"], value
    }' <<<"$json" | cut -c1-110
}

run_bench() {
  local traces=.device/traces trace number
  start_mps
  check "launch_bench" 60 .device/tests/launch_bench 8
  bench "bench" 120 all --shape S4096,H7168,K8,E256,P128 --shape S8192,H3584,K8,E256,P128 \
    --shape S128,H7168,K8,E256,P16
  bench "bench plan" 120 plan --shape S8192,H3584,K8,E256 --shape S8192,H3584,K8,E896
  bench "bench prefetch" 60 prefetch --shape S4096,H7168,K8,E256,I1024
  bench "bench reduce" 60 reduce --shape S4096,H7168,K8,E256,I1024
  bench "bench rings" 120 rings --shape S2048,H7168,K8,E256,I1024 --iterations 5 --warmup 2
  bench "bench rings, one micro-batch" 60 rings --micro-batches 1 --iterations 5 --warmup 2 \
    --shape S2048,H7168,K8,E256,I1024
  # Weights that prefetch brings against weights that the experts read where they are.
  for number in 0 3 4 32; do
    bench "bench B$number" 60 layer --shape "S128,H7168,K8,E256,P16,I1024,B$number" --inputs 1 \
      --warmup 2 --iterations 5
  done
  if [[ -d $traces ]]; then
    for trace in e256_k8:1 e256_k8_early:2; do
      bench "bench $trace" 120 all --trace "$traces/${trace%:*}.safetensors" --layer "${trace#*:}" \
        --shape S4096,H7168,K8,E256,P128 --shape S8192,H3584,K8,E256,P128
    done
    # All layers that the traces have, briefly: for a plot.
    for trace in e256_k8 e256_k8_early; do
      for number in 0 1 2 3; do
        bench "sweep $trace:$number" 30 all --trace "$traces/$trace.safetensors" --layer "$number" \
          --shape S4096,H7168,K8,E256,P128 --inputs 1 --iterations 5
      done
    done
  else
    printf 'No %s: routes of traces are LEFT OUT. See pack.sh --traces.\n' "$traces"
    note_result "bench of traces" "left out" 0 "packed without --traces"
  fi
  stop_mps
}

run_paths() {
  local run
  start_mps
  for run in ${PERIGEE_PATH_RUNS:-4:3 8:1}; do
    measure_paths "${run%:*}" "${run#*:}" --shared-gpu --sms 16
  done
  stop_mps
  show_paths
}

# with_cluster NAME RANKS COMMAND ARGUMENT...: a check of the command on a cluster of as many workers,
# whose address takes the place of ADDRESS.
with_cluster() {
  local name=$1 ranks=$2 address up i
  shift 2
  local said=$logs/${name//[^a-zA-Z0-9]/_}_up.log
  "$perigee" up --ranks "$ranks" --backend cuda --shared-gpu >"$said" 2>&1 &
  up=$!
  for ((i = 0; i < 300; ++i)); do
    grep -q '^ready:' "$said" || ! kill -0 "$up" 2>/dev/null || { sleep 0.2 && continue; }
    break
  done
  address=$(awk '$1 == "coordinator" { print $2 }' "$said")
  check "$name" 120 "${@/ADDRESS/$address}"
  cat "$log"
  kill "$up" 2>/dev/null || true
  for ((i = 0; i < 50; ++i)); do
    kill -0 "$up" 2>/dev/null || return 0
    sleep 0.2
  done
  kill -9 "$up" 2>/dev/null || true
}

run_attach() {
  local sequence=(python3 tests/device/torch_sequence.py)
  start_mps
  check "torch sequence, 4 ranks, MPS" 300 "${sequence[@]}" --ranks 4
  with_cluster "local client, MPS" 1 .device/tests/local_client_bench ADDRESS 1 2000 --backend=cuda
  with_cluster "local client, S 4096, MPS" 1 .device/tests/local_client_bench ADDRESS 1 2000 \
    --backend=cuda --tokens=4096 --hidden=7168 --topk=8 --experts=64 --intermediate=64
  with_cluster "a slot's mark, MPS" 1 .device/tests/slot_mark_bench 1000 --address=ADDRESS
  stop_mps
  check "local clients" 300 env -C .device/programs \
    PERIGEE_CLIENT_PROCESS="$PWD/.device/tests/local_client_process" \
    "$PWD/.device/tests/local_client_test" "$cuda_only"
  check "clients of every kind" 300 .device/tests/rank_client_test "$cuda_only"
  check "their prefetches" 300 .device/tests/prefetch_client_test "$cuda_only"
  check "their publications" 300 .device/tests/publication_client_test "$cuda_only"
  check "their sources" 300 .device/tests/source_client_test "$cuda_only"
  check "their own producers" 300 .device/tests/peer_store_test "$cuda_only"
  check "their output slots" 300 .device/tests/rings_client_test "$cuda_only"
  check "their micro-batches" 300 .device/tests/micro_batches_test "$cuda_only"
  check "their readers" 300 .device/tests/rings_stream_test "$cuda_only"
  check "torch sequence, 2 ranks, no MPS" 300 "${sequence[@]}" --ranks 2 --rounds 2
  check "command ring" 120 .device/tests/command_ring_bench
  cat "$log"
}

run_loss() {
  local test
  for test in process_rows rank_loss stopped_rank; do
    check "$test" 300 ".device/tests/${test}_test"
  done
  check "cuda_run" 300 env -C .device/programs "$PWD/.device/tests/cuda_run_test"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for section in "${sections[@]}"; do
  case $section in
    device) run_device ;;
    contract) run_contract ;;
    sanitizer) run_sanitizer ;;
    layer) run_layer ;;
    bench) run_bench ;;
    paths) run_paths ;;
    attach) run_attach ;;
    loss) run_loss ;;
  esac
done
finish
