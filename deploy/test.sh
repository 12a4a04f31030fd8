#!/usr/bin/env bash
# Builds everything and runs all tests, optimised and then under sanitizers. Last line of output:
# 'N passed, N failed, N skipped'.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: deploy/test.sh [--quick] [--pass NAME]...

Installs what is missing (Debian 12), builds everything and runs all tests, in three passes:
  opt         everything, optimised
  asan_ubsan  kernels, contract suite, server, worker, protocol and client library with the address
              and undefined-behaviour sanitizers
  tsan        kernels, server, worker and protocol with the thread sanitizer, tests tagged no-tsan
              left out
Prints which tests were skipped and why. Exit status 0: something ran and nothing failed.

  --quick      only the first pass
  --pass NAME  only this one; may be given more than once
  --help       this text
TEXT
}

wrong_use() {
  printf 'test.sh: %s\n' "$1" >&2
  usage >&2
  exit 2
}

passes=()
while (($# > 0)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --quick) passes+=(opt) ;;
    --pass)
      [[ ${2:-} =~ ^(opt|asan_ubsan|tsan)$ ]] || wrong_use "--pass takes opt, asan_ubsan or tsan"
      passes+=("$2")
      shift
      ;;
    *) wrong_use "unknown argument: $1" ;;
  esac
  shift
done
((${#passes[@]} > 0)) || passes=(opt asan_ubsan tsan)

cd "$(dirname "${BASH_SOURCE[0]}")/.."
deploy/install_packages.sh

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

flags=(--keep_going)
# A terminal gets Bazel's moving progress display; a log file gets a line now and then.
[[ -t 2 ]] || flags+=(--curses=no --color=no --show_progress_rate_limit=10)
# Larger inputs than the repository holds; tests that want them are skipped where they are not.
shared_data=${PERIGEE_SHARED_DATA:-$(cd .. && pwd)/shared/data}
[[ ! -d $shared_data ]] || flags+=("--test_env=PERIGEE_SHARED_DATA=$shared_data")

run_pass() {
  local name=$1
  shift
  printf '== %s\n' "$name"
  # What failed is read from the events file, so that the next pass runs all the same.
  bazel test "${flags[@]}" "--build_event_json_file=$results/$name" "$@" || true
}

concurrent=(//kernels/... //proto/... //server/... //worker/...) # what both sanitizers run
for pass in "${passes[@]}"; do
  case $pass in
    opt) run_pass opt //... ;;
    asan_ubsan)
      run_pass asan_ubsan --config=asan_ubsan --build_tests_only \
        "${concurrent[@]}" //client/lib/... //tests/contract/...
      ;;
    tsan) run_pass tsan --config=tsan --build_tests_only "${concurrent[@]}" ;;
  esac
done
# The server that Bazel leaves behind makes the next call quick; in CI there is none.
[[ ${CI:-} != true ]] || bazel shutdown

events=()
for pass in "${passes[@]}"; do
  events+=("$pass=$results/$pass")
done
deploy/tools/count_tests.py "${events[@]}"
