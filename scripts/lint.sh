#!/usr/bin/env bash
# usage: scripts/lint.sh BUILD_FOLDER      a configured tree with compile_commands.json
# Formatting, static analysis and the architecture checks. Prints what to mend; exit status 1 when there is something.
set -euo pipefail
cd "$(dirname "$0")/.."
tree=$1
status=0

mapfile -t sources < <(git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh')
if ! clang-format-14 --dry-run -Werror "${sources[@]}"; then
  echo "lint: formatting differs; mend with: clang-format-14 -i \$(git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh')" >&2
  status=1
fi

scripts/check_architecture.sh || status=1

# Headers are checked through the sources that include them.
mapfile -t units < <(git ls-files '*.cpp')
analysed=()
for unit in "${units[@]}"; do
  grep -qF "\"file\": \"$PWD/$unit\"" "$tree/compile_commands.json" && analysed+=("$unit")
done
printf '%s\n' "${analysed[@]}" |
  xargs --max-procs "${JOBS:-$(nproc)}" --max-args 1 clang-tidy-14 -p "$tree" --quiet --warnings-as-errors='*' \
    --extra-arg=-Wno-unknown-warning-option >"$tree/clang-tidy.log" 2>/dev/null || status=1
grep -E 'error:|warning:' "$tree/clang-tidy.log" | sort -u || true

[[ $status -eq 0 ]] && echo "lint: clean (${#sources[@]} files formatted, ${#analysed[@]} analysed)"
exit $status
