#!/usr/bin/env bash
# usage: scripts/test.sh BUILD_FOLDER PRESET      runs every test of that build
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
preset=$2
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
echo "== tests: $preset"
ctest --test-dir "$folder" --output-on-failure --parallel "${JOBS:-$(nproc)}" --no-tests=error \
  --output-junit junit.xml
