#!/usr/bin/env bash
# Builds what tests/device/run.sh and run_many.sh run, for a machine that has CUDA and neither Bazel nor gRPC, and
# packs it into .device/device.tar.xz (ignored by git).
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/device/pack.sh [--traces DIR]

Builds the device tests, the contract suite, the three programs and some benches with gRPC, the CUDA
runtime and libstdc++ linked in, and the Python client with the libraries that its shared object needs
beside it; strips and packs them into .device/device.tar.xz. Copy the checkout with that
folder to the GPU machine and run tests/device/run.sh there, or run_many.sh where it has several GPUs.
BAZEL names the command to build with (default: bazel).

  --traces DIR  pack e256_k8.safetensors and e256_k8_early.safetensors of DIR, too: routes that
                run.sh bench measures

Exit status 1 where the archive has 60 MiB or more.
TEXT
}

wrong_use() {
  printf 'pack.sh: %s\n' "$1" >&2
  usage >&2
  exit 2
}

traces=()
while (($# > 0)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --traces)
      [[ -n ${2:-} ]] || wrong_use "--traces takes a directory"
      for name in e256_k8 e256_k8_early; do
        traces+=("$(realpath -m "$2")/$name.safetensors")
        [[ -f ${traces[-1]} ]] || wrong_use "--traces: there is no ${traces[-1]}"
      done
      shift
      ;;
    *) wrong_use "unknown argument: $1" ;;
  esac
  shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -ra bazel <<<"${BAZEL:-bazel}"
flags=(--config=portable --strip=always)
programs=(//client/cli:perigee //server:perigee-coordinator //worker:perigee-worker)
query=$("${bazel[@]}" query 'tests(//tests/contract/...) + tests(//kernels/device/...) + tests(//tests/device/...)')
mapfile -t tests <<<"$query"
tests+=(//tests/integration:{cuda_run_test,local_client_test,local_client_process} //tests/device:{launch,link,nccl}_bench)
tests+=(//tests/bench:{command_ring,local_client,slot_mark}_bench)
tests+=(//tests/clients:{rank_client,prefetch_client,publication_client,source_client,peer_store,rings_client}_test)
tests+=(//tests/clients:{rings_stream,micro_batches}_test)
"${bazel[@]}" build "${flags[@]}" "${tests[@]}" "${programs[@]}"

bin=$("${bazel[@]}" info "${flags[@]}" bazel-bin)
rm -rf .device
mkdir -p .device/tests
for label in "${tests[@]}"; do
  path=${label#//}
  strip -o ".device/tests/${path##*:}" "$bin/${path/:/\/}"
done
# Where tests/integration looks for them, seen from the folder that it runs in.
for label in "${programs[@]}"; do
  path=${label#//}
  mkdir -p ".device/programs/${path%%:*}"
  strip -o ".device/programs/${path/:/\/}" "$bin/${path/:/\/}"
done
# A shared object cannot have Debian's archives in it: the libraries that it needs come along, but for
# those that every machine has.
"${bazel[@]}" build --strip=always //client/lib:libperigee.so
lib=$("${bazel[@]}" info bazel-bin)/client/lib/libperigee.so
mkdir -p .device/programs/client/{lib,python/perigee}
strip -o .device/programs/client/lib/libperigee.so "$lib"
ldd "$lib" | awk '$3 ~ /^\// && $1 !~ /^lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so/ { print $3 }' |
  xargs cp --no-preserve=mode -t .device/programs/client/lib
cp --no-preserve=mode client/python/perigee/*.py .device/programs/client/python/perigee
packed=(tests programs)
if ((${#traces[@]} > 0)); then
  packed+=(traces)
  mkdir -p .device/traces
  cp --no-preserve=mode "${traces[@]}" .device/traces
fi
# Most programs have gRPC in them: a dictionary that reaches from one to the next makes it a third.
XZ_OPT="--lzma2=preset=2,dict=128MiB" \
  tar cJf .device/device.tar.xz --sort=name -C .device --remove-files "${packed[@]}"
du -h .device/device.tar.xz
if (($(stat -c %s .device/device.tar.xz) >= 60 << 20)); then
  printf 'pack.sh: .device/device.tar.xz has 60 MiB or more\n' >&2
  exit 1
fi
