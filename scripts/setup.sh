#!/usr/bin/env bash
# Installs the packages of the named groups (scripts/packages.txt) that are missing; does nothing when all are there.
# usage: scripts/setup.sh [group ...]      default: build
# Exit status 2: something is missing and cannot be installed from here; the message says what to run.
set -euo pipefail
cd "$(dirname "$0")/.."

groups=("${@:-build}")
wanted=()
for group in "${groups[@]}"; do
  while read -r package; do wanted+=("$package"); done \
    < <(awk -v group="$group" '$1 == group { print $2 }' scripts/packages.txt)
done

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this system has no dpkg. gradwire needs what Debian calls: ${wanted[*]}" >&2
  echo "setup: going on; CMake names whatever is missing." >&2
  exit 0
fi

is_installed() { [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

missing=()
for package in "${wanted[@]}"; do
  is_installed "$package" || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

install="apt-get install --yes --no-install-recommends ${missing[*]}"
if [[ $(id -u) -eq 0 ]]; then
  as_root=()
elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
  as_root=(sudo)
else
  echo "setup: packages are missing and you are not root. An administrator must run:" >&2
  echo "  apt-get update && $install" >&2
  exit 2
fi

echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
run() { ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive "$@"; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for attempt in 1 2 3; do
  if run apt-get update >"$log" 2>&1 && run $install >>"$log" 2>&1; then
    exit 0
  fi
  echo "setup: attempt $attempt failed" >&2
  sleep $((attempt * 2))
done
tail -n 20 "$log" >&2
echo "setup: the packages could not be installed; mend what the lines above say, or run: apt-get update && $install" >&2
exit 2
