#!/usr/bin/env bash
# From a fresh clone to a real mixture-of-experts layer computed by a coordinator and eight workers.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: deploy/quickstart.sh

Installs what is missing (Debian 12), builds the `perigee` command with its coordinator and worker,
and runs a trained mixture-of-experts layer on this machine: a coordinator and eight worker
processes that end with the run. The result is compared with an expected output; PASS or FAIL is the
last word and the exit status says the same. A second call only runs.
TEXT
}

case ${1:-} in
  --help | -h) usage && exit 0 ;;
  "") ;;
  *)
    printf 'quickstart.sh: unknown argument: %s\n' "$1" >&2
    usage >&2
    exit 2
    ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
input=tests/testdata/moe_layer_e64_k8.safetensors
step() { printf '== %s\n' "$*"; }

step "packages"
deploy/install_packages.sh

step "build (the first takes some minutes)"
# Asked for before the build, because every bazel command writes that log anew.
build_log=$(bazel info command_log 2>/dev/null) || build_log="what bazel says above"
if ! bazel build //client/cli:perigee //server:perigee-coordinator //worker:perigee-worker; then
  printf 'quickstart.sh: the build failed; its log is %s\n' "$build_log" >&2
  exit 1
fi
perigee=$(bazel info bazel-bin 2>/dev/null)/client/cli/perigee
[[ ${CI:-} != true ]] || bazel shutdown

step "perigee run moe-layer --input $input --ranks 8"
status=0
"$perigee" run moe-layer --input "$input" --ranks 8 || status=$?
if ((status == 0)); then
  step "eight workers computed the layer, steered by a coordinator, and it is as expected: PASS"
else
  step "perigee ended with status $status; what it said stands above: FAIL"
fi
exit "$status"
