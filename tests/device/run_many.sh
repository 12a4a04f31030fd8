#!/usr/bin/env bash
# Runs what needs several GPUs of one host, a worker or rank on each, from the binaries that
# tests/device/pack.sh has put into .device/.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/device/run_many.sh [--gpus N] [--logs DIR] [SECTION]...

Needs CUDA and nothing else. Runs on the first N GPUs (default: all of this machine), without MPS and
without NVLink multicast. Sections, all of them but paths by default:
  topology   how the GPUs are connected, and which may reach into each other's memory
  contract   the contract suite on the CUDA backend, rank r on GPU r % N; PERIGEE_RANDOM_GROUPS
             random groups (default 300)
  layer      a coordinator and N worker processes run a trained layer, a GPU each
  transport  transport nccl against nvlink, bit by bit, a rank on each GPU; the layer over it, and
             dispatch and combine
  links      rates of copies between every two GPUs, by threads and by bulk copies; an all-to-all by
             NCCL
  bench      dispatch, combine, prefetch and reduce of N workers at several shapes and numbers of SMs,
             and what links carry of a dispatch with nothing else in it
  paths      as of run.sh, a worker on each GPU; PERIGEE_PATH_RUNS (N:3) has RANKS:PROCESSES, RANKS
             at most N; PERIGEE_PATH_ROUTES and PERIGEE_PATH_ITERATIONS as there. Not among those that run
             by default
  loss       ranks that are killed, stopped or never arrive, a process each, rank r on GPU r % N
Prints a table last; exit status 0: everything passed. Logs go to DIR (default: a temporary one).
With one GPU everything runs on it, and no link is used.
TEXT
}

wrong_use() {
  printf 'run_many.sh: %s\n' "$1" >&2
  usage >&2
  exit 2
}

logs=""
gpus=""
sections=()
while (($# > 0)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --logs)
      logs=${2:?--logs needs a directory}
      shift
      ;;
    --gpus)
      gpus=${2:?--gpus needs a number}
      shift
      ;;
    topology | contract | layer | transport | links | bench | paths | loss) sections+=("$1") ;;
    *) wrong_use "unknown argument: $1" ;;
  esac
  shift
done
((${#sections[@]} > 0)) || sections=(topology contract layer transport links bench loss)

present=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
((present > 0)) || wrong_use "this machine has no GPU"
[[ ${gpus:=$present} =~ ^[1-9][0-9]*$ ]] || wrong_use "--gpus is $gpus, expected a number"
((gpus <= present)) || wrong_use "--gpus is $gpus, this machine has $present"

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/device/checks.sh
source tests/device/checks.sh
prepare "$logs"
if ((gpus < present)); then
  CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((gpus - 1)))
  export CUDA_VISIBLE_DEVICES
fi
unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
export NCCL_NVLS_ENABLE=0 PERIGEE_DEVICES=$gpus

# show: the last check's log, its lines of JSON left out.
show() {
  grep -v '^{' "$log" | cut -c1-200 || true
}

run_topology() {
  check topology 60 nvidia-smi topo -m
  show
  local access
  for access in r w; do
    check "peer access, $access" 60 nvidia-smi topo -p2p "$access"
    show
  done
}

run_contract() {
  local test
  export PERIGEE_RANDOM_GROUPS=${PERIGEE_RANDOM_GROUPS:-300}
  for test in queued polled dispatch combine experts gradients lifetimes aliases disagreement lost_rank \
    refusals publication publication_lifetimes producer source source_damage source_lifetimes \
    rings rings_lifetimes rings_capture weight_formats layer; do
    check "contract $test, $gpus GPUs" 200 ".device/tests/${test}_test" "$cuda_only"
  done
  unset PERIGEE_RANDOM_GROUPS
}

run_layer() {
  check "moe-layer, $gpus workers" 120 "$perigee" run moe-layer --input "$layer" --backend cuda \
    --ranks "$gpus" --iterations 200
  show
  check "moe-layer out of its owners' memory, $gpus workers" 120 "$perigee" run moe-layer \
    --input "$layer" --backend cuda --ranks "$gpus" --iterations 200 --source
  show
}

run_transport() {
  if ((gpus == 1)); then
    printf 'transport: skipped, NCCL has no two ranks on one GPU\n'
    return
  fi
  check "contract transport, $gpus GPUs" 200 .device/tests/transport_test \
    '--gtest_filter=*cuda*:*Cuda*:*Nccl*'
  check "moe-layer over NCCL, $gpus workers" 120 "$perigee" run moe-layer --input "$layer" \
    --backend cuda --transport nccl --ranks "$gpus" --iterations 50
  show
  check "bench over NCCL" 180 "$perigee" bench all --backend cuda --transport nccl \
    --ranks "$gpus" --shape S4096,H7168,K8,E256,P128 --shape S128,H7168,K8,E256,P16
  show
}

run_links() {
  check "links" 300 .device/tests/link_bench
  show
  check "NCCL" 120 .device/tests/nccl_bench
  show
}

run_bench() {
  # shellcheck disable=SC2054  # the commas are in the shapes
  local shapes=(--shape S4096,H7168,K8,E256,P128 --shape S8192,H7168,K8,E256,P128
    --shape S128,H7168,K8,E256,P16 --shape S8192,H7168,K8,E896,P128)
  # shellcheck disable=SC2054
  local step=(--shape S4096,H7168,K8,E256,I1024)
  local sms operation
  for sms in 8 16 24 32; do
    check "bench, $sms SMs" 120 "$perigee" bench all --backend cuda --ranks "$gpus" \
      "${shapes[@]}" --sms "$sms"
    show
  done
  if ((gpus > 1)); then
    # shellcheck disable=SC2054
    local wire=(--shape S4096,H7168,K1,E256,P1 --shape S16384,H7168,K1,E256,P1)
    check "bench wire, 24 SMs" 120 "$perigee" bench wire --backend cuda --ranks "$gpus" \
      "${wire[@]}" --sms 24
    show
  fi
  for operation in prefetch reduce; do
    check "bench $operation, 24 SMs" 120 "$perigee" bench "$operation" --backend cuda \
      --ranks "$gpus" "${step[@]}" --sms 24
    show
  done
  check "bench, as JSON" 120 "$perigee" bench all --backend cuda --ranks "$gpus" \
    "${shapes[@]}" --sms 24 --json
}

run_paths() {
  local run
  for run in ${PERIGEE_PATH_RUNS:-$gpus:3}; do
    measure_paths "${run%:*}" "${run#*:}" --sms 24
  done
  show_paths
}

run_loss() {
  local test
  for test in process_rows rank_loss stopped_rank; do
    check "$test, $gpus GPUs" 300 ".device/tests/${test}_test" '--gtest_filter=*cuda*'
    grep -h '^MEASURED' "$log" | cut -c1-2000 || true
  done
  check "cuda_run, $gpus GPUs" 300 env -C .device/programs "$PWD/.device/tests/cuda_run_test"
}

nvidia-smi --query-gpu=index,name,driver_version --format=csv,noheader
((gpus > 1)) || printf 'One GPU: all ranks share it, and nothing crosses a link.\n'
for section in "${sections[@]}"; do
  case $section in
    topology) run_topology ;;
    contract) run_contract ;;
    layer) run_layer ;;
    transport) run_transport ;;
    links) run_links ;;
    bench) run_bench ;;
    paths) run_paths ;;
    loss) run_loss ;;
  esac
done
finish
