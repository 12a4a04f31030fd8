#!/usr/bin/env bash
# usage: install_packages.sh [MORE_PACKAGES]...
#
# Installs the Debian 12 packages that building and testing need: those that are missing, no others.
# Blocks until they are installed. Exit status 0: all are there; 1: they could not be installed, with
# a line on stderr that says why. PERIGEE_SKIP_INSTALL=1: does nothing, for machines set up by hand.
set -euo pipefail

packages=(
  bazel-bootstrap # Debian's bazel 4; brings the JDK that runs it
  g++
  libabsl-dev
  libbenchmark-dev
  libgmock-dev
  libgrpc++-dev
  libgtest-dev
  libprotobuf-dev
  libspdlog-dev
  libsqlite3-dev
  libssl-dev
  protobuf-compiler
  protobuf-compiler-grpc
  python3 # the summary of the tests, and deploy/tools
  python3-numpy # the Python client
  zlib1g-dev
  "$@"
)

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true) == installed ]]
}

# One value of /etc/os-release, empty where it is not there.
os_release() {
  # shellcheck source=/dev/null
  [[ ! -r /etc/os-release ]] || (. /etc/os-release && echo "${!1:-}")
}

# What to put before a command that root must run; fails where there is no way to become root.
become_root() {
  if ((EUID == 0)); then
    return 0
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    echo sudo -n
  elif command -v sudo >/dev/null && [[ -t 0 ]]; then
    echo sudo
  else
    return 1
  fi
}

main() {
  if [[ ${PERIGEE_SKIP_INSTALL:-} == 1 ]]; then
    return 0
  fi
  local id version
  id=$(os_release ID)
  version=$(os_release VERSION_ID)
  if [[ $id != debian || $version != 12 ]]; then
    say "this is ${id:-an unknown system}${version:+ $version}; only Debian 12 is known here" \
      "(with the counterparts of its packages installed by hand: PERIGEE_SKIP_INSTALL=1)"
    return 1
  fi

  local package missing=()
  for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    return 0
  fi

  local prefix
  local -a root=()
  if ! prefix=$(become_root); then
    say "root is needed once: apt-get install -y --no-install-recommends ${missing[*]}"
    return 1
  fi
  read -ra root <<<"$prefix"
  local -a apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get
    -o DPkg::Lock::Timeout=120 -o APT::Update::Error-Mode=any -o Dpkg::Use-Pty=0 -q)

  say "installing ${#missing[@]} packages and what they depend on: ${missing[*]}"
  if ! "${apt[@]}" update; then
    say "apt-get update failed; once more"
    "${apt[@]}" update || say "it failed again; going on with the package lists that are there"
  fi
  if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; then
    say "apt-get could not install: ${missing[*]}"
    return 1
  fi
  say "installed"
}

main
