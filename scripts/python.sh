#!/usr/bin/env bash
# usage: scripts/python.sh            builds the Python package and installs it into .venv
#        scripts/python.sh test       … and runs its tests, with torch from the package index
# What is there already is not installed again.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
log=build/python.log
mkdir -p build

fail() {
  tail -n 30 "$log" >&2
  echo "python: $1; the whole log is $log" >&2
  exit 2
}

# module=package, where the names differ.
need() {
  local missing=()
  for pair in "$@"; do
    "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('${pair%%=*}') is None)" || missing+=("${pair##*=}")
  done
  [[ ${#missing[@]} -eq 0 ]] && return
  echo "python: installing ${missing[*]} into .venv"
  # uv takes half a minute for torch and what it brings, pip three.
  "$python" -m uv pip install --python "$python" --quiet "${missing[@]}" >"$log" 2>&1 ||
    "$python" -m pip install --disable-pip-version-check --quiet "${missing[@]}" >>"$log" 2>&1 ||
    fail "packages could not be installed: is the package index in reach?"
}

[[ -x $python ]] || python3 -m venv .venv >"$log" 2>&1 || fail ".venv could not be made (Debian: python3-venv)"
need uv
need scikit_build_core=scikit-build-core nanobind numpy
echo "python: building the package"
"$python" -m pip install --disable-pip-version-check --no-build-isolation --no-deps . >"$log" 2>&1 ||
  fail "the package could not be built"

[[ ${1:-} == test ]] || exit 0
need pytest mypy torch torchvision accelerate lightning
echo "== tests: python"
"$python" -m pytest --quiet --junit-xml build/python-junit.xml tests/python
