#!/usr/bin/env bash
# The arrows of docs/design.md §2 as far as includes show them, and the limits of a source file.
# Prints each offence; exit status 1 when there is one.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
offence() { echo "architecture: $1" >&2; status=1; }

# folder: what its files must not include
forbid() {
  local folder=$1 pattern=$2 why=$3 hit
  while IFS= read -r hit; do
    [[ -n $hit ]] && offence "$hit: $why"
  done < <(git ls-files -z "$folder" | xargs -0 -r grep -nE "^ *# *include *[<\"]($pattern)" /dev/null || true)
}
forbid core 'compressors/|comm/|overlap/|bench/' "core uses nothing of gradwire but itself"
forbid compressors 'comm/|overlap/|bench/|gradwire/(communicator|inproc|gloo|mpi|handshake|launch|reduc)' \
  "codecs know nothing of ranks"
for transport in comm/*/; do
  [[ $transport == comm/reductions/ ]] && continue
  forbid "$transport" 'compressors/|comm/reductions/|overlap/|bench/|gradwire/(codec|spec|frame|reduc)' \
    "transports know nothing of codecs"
done
forbid comm/reductions 'overlap/|bench/|gradwire/reducer' "reductions know nothing of buckets and streams above them"
forbid overlap 'bench/' "the library does not use the program"
forbid include 'cuda|nccl|mpi\.h|gloo/|torch|hwy/|fmt/|spdlog|nlohmann|Eigen|boost' \
  "public headers stand alone: no library behind them shows"

# CUDA's headers are for kernels and what surrounds them; everything else compiles without.
while IFS= read -r hit; do
  offence "$hit: CUDA headers only in .cu, .cuh and include/gradwire/cuda"
done < <(git ls-files -z '*.cpp' '*.hpp' ':!tests/cuda_sim' ':!include/gradwire/cuda' |
  xargs -0 -r grep -nE '^ *# *include *[<"](cuda|cub/|thrust/)' /dev/null || true)

while IFS= read -r file; do
  lines=$(wc -l <"$file")
  [[ $lines -le 500 ]] || offence "$file has $lines lines: split it by reasons to change (limit 500)"
done < <(git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh' '*.py' '*.sh' '*.js' '*.css' '*.cmake')

exit $status
