#!/usr/bin/env bash
# usage: check_vectors.sh NVCC SOURCE INCLUDE_FOLDER...
# Compiles SOURCE to PTX for sm_90 and wants, in every kernel that streams elements, a load and a store of 16 bytes.
# Prints the kernels that lack one; exit status 1 when there is one, or when there is no such kernel at all.
set -euo pipefail
nvcc=$1
source=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$nvcc" -std=c++20 -O3 -arch=compute_90 --fmad=false --expt-relaxed-constexpr -ptx "${@/#/-I}" -o "$folder/kernels.ptx" \
  "$source"
awk '
  function judge() {
    if (name == "") return
    ++kernels
    if (loads == 0 && wants_loads) { print "no load of 16 bytes in " name; bad = 1 }
    if (stores == 0 && wants_stores) { print "no store of 16 bytes in " name; bad = 1 }
  }
  /\.entry/ {
    judge()
    name = ""
    if ($0 ~ /(encode_kernel|decode_kernel|reduce_kernel|keep_kernel|count_digits_kernel|count_tiles_kernel)/) name = $0
    wants_stores = ($0 !~ /count_/)
    # Without addition a decoder reads only its payload: words, not elements.
    wants_loads = ($0 !~ /decode_kernel.*Lb0EEEv/)
    loads = stores = 0
  }
  # A fill of floats only stores, and payloads are words: what is looked for is the gradients and residuals.
  /[ \t]ld(\.global)?(\.nc)?\.(v4\.[ubf]32|v2\.[ubf]64)/ { ++loads }
  /[ \t]st(\.global)?\.(v4\.[ubf]32|v2\.[ubf]64)/ { ++stores }
  END {
    judge()
    if (kernels == 0) { print "no kernel that streams elements"; bad = 1 }
    else print kernels " kernels looked at"
    exit bad
  }' "$folder/kernels.ptx"
