#!/usr/bin/env bash
# usage: run_test.sh TEST.py. Runs it with Debian's Python, which has NumPy, on the package and the
# modules that lie beside it here, not on those that the links lead to.
set -euo pipefail
export PYTHONPATH=$PWD/client/python PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 "$1"
