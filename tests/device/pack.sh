#!/usr/bin/env bash
# Builds what tests/device/run.sh runs, for a machine that has CUDA and neither Bazel nor gRPC, and
# puts it into .device/ (ignored by git; under 64 MiB).
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/device/pack.sh

Builds the device tests, the contract suite and the perigee command with gRPC, the CUDA runtime and
libstdc++ linked in, stripped, into .device/. Copy the checkout with that folder to the GPU machine
and run tests/device/run.sh there. BAZEL names the command to build with (default: bazel).
TEXT
}

case ${1:-} in
  --help | -h) usage && exit 0 ;;
  "") ;;
  *) printf 'pack.sh: unknown argument: %s\n' "$1" >&2 && usage >&2 && exit 2 ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -ra bazel <<<"${BAZEL:-bazel}"
flags=(--config=portable --strip=always)
query=$("${bazel[@]}" query 'tests(//tests/contract/...) + tests(//kernels/device/...) + tests(//tests/device/...)')
mapfile -t tests <<<"$query"
binaries=(//client/cli:perigee //worker:perigee-worker //server:perigee-coordinator)
"${bazel[@]}" build "${flags[@]}" "${tests[@]}" "${binaries[@]}"

bin=$("${bazel[@]}" info "${flags[@]}" bazel-bin)
rm -rf .device
mkdir -p .device/tests .device/bin
for label in "${tests[@]}"; do
  path=${label#//}
  strip -o ".device/tests/${path##*:}" "$bin/${path/:/\/}"
done
for label in "${binaries[@]}"; do
  path=${label#//}
  strip -o ".device/bin/${path##*:}" "$bin/${path/:/\/}"
done
du -sh .device
