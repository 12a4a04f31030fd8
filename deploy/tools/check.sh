#!/usr/bin/env bash
# Every check that needs no test run: tidiness, format, shell scripts, clang-tidy.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: deploy/tools/check.sh [--fix] [--quick] [--all] [--base REVISION]

  tidy.py       include arrows, sizes, BUILD files, .proto comments, words, scripts, include guards
  clang-format  all C++ and CUDA sources; --fix formats them
  shellcheck    all shell scripts, where it is installed
  clang-tidy    the .cc files changed since REVISION (default: where this branch left its upstream
                or origin/main, else HEAD), committed or not; --all: every one; --quick: none

Exit status 0: nothing was found.
TEXT
}

wrong_use() {
  printf 'check.sh: %s\n' "$1" >&2
  usage >&2
  exit 2
}

fix=false quick=false all=false base=""
while (($# > 0)); do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --fix) fix=true ;;
    --quick) quick=true ;;
    --all) all=true ;;
    --base)
      [[ -n ${2:-} ]] || wrong_use "--base takes a revision"
      base=$2
      shift
      ;;
    *) wrong_use "unknown argument: $1" ;;
  esac
  shift
done

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
deploy/install_packages.sh git clang-format-14 clang-tidy-14
failed=()

sources() { # PATTERN...: what is tracked or could be, and is there
  git ls-files -z --cached --others --exclude-standard -- "$@" |
    while IFS= read -rd '' path; do [[ ! -f $path ]] || printf '%s\0' "$path"; done
}

tidiness() {
  printf '== tidy\n'
  deploy/tools/tidy.py || failed+=(tidy)
}

format() {
  printf '== clang-format\n'
  local mode=(--dry-run --Werror)
  [[ $fix == false ]] || mode=(-i)
  sources '*.h' '*.cc' '*.cu' '*.cuh' | xargs -0r clang-format-14 "${mode[@]}" ||
    failed+=(clang-format)
}

shell_scripts() {
  printf '== shellcheck\n'
  if ! command -v shellcheck >/dev/null; then
    printf 'not installed, left out\n'
    return 0
  fi
  sources '*.sh' .ci/run | xargs -0r shellcheck || failed+=(shellcheck)
}

# The .cc files to look at, one a line: a changed header stands for the .cc beside it.
changed_files() {
  local reference=$base candidate
  for candidate in '@{upstream}' origin/main; do
    [[ -n $reference ]] || reference=$(git merge-base HEAD "$candidate" 2>/dev/null || true)
  done
  {
    git ls-files --others --exclude-standard -- '*.cc' '*.h'
    git diff --name-only --diff-filter=d "${reference:-HEAD}" -- '*.cc' '*.h'
  } | sed 's/\.h$/.cc/' | sort -u | while IFS= read -r path; do
    [[ ! -f $path ]] || printf '%s\n' "$path"
  done
}

clang_tidy() {
  printf '== clang-tidy\n'
  local -a files
  if [[ $all == true ]] || ! git rev-parse --verify --quiet HEAD >/dev/null; then
    mapfile -d '' files < <(sources '*.cc')
  else
    [[ -z $base ]] || git rev-parse --verify --quiet "$base^{commit}" >/dev/null ||
      wrong_use "no such revision: $base"
    mapfile -t files < <(changed_files)
  fi
  printf '%d files\n' "${#files[@]}"
  ((${#files[@]} > 0)) || return 0
  deploy/tools/compile_commands.py || { failed+=(clang-tidy) && return 0; }
  # clang-tidy sees our headers below the directory of the compile command.
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 -p . --quiet --header-filter="^$PWD/\\./" ||
    failed+=(clang-tidy)
}

tidiness
format
shell_scripts
[[ $quick == true ]] || clang_tidy

if ((${#failed[@]} > 0)); then
  printf 'check: %s found something\n' "${failed[*]}"
  exit 1
fi
printf 'check: nothing found\n'
