#!/usr/bin/env bash
# How long averaging takes over a link of a known rate: two ranks in two network namespaces, joined by a veth pair whose
# two ends are shaped with tc. Compares every method with Gloo's own f32 all-reduce in the same run.
# usage: bench/lab/run.sh [RATE ...]     tc's units; default: 1gbit 200mbit unshaped
#   BYTES=100000000   of gradients on each rank      ITERS=5   timed calls a method
# Leaves build/lab/lab.jsonl. Exit status: 0 done, or skipped with the reason (not root, no namespaces); 1 a check
# failed; 2 the program is missing or a run broke; 130 Ctrl-C. A missed speed target is shown and does not fail: a busy
# machine misses it too.
set -euo pipefail
cd "$(dirname "$0")/../.."

rates=("${@:-1gbit}")
[[ $# -gt 0 ]] || rates=(1gbit 200mbit unshaped)
bytes=${BYTES:-100000000}
iterations=${ITERS:-5}
# All but dense go through the reducer, as in training: it cuts the bucket in chunks whose encoding, sending and decoding
# overlap.
# By both ways around for the methods that the targets name: two ranks send equally much by either, and `auto` then
# takes one_shot.
specs=(bf16 'onebit+via(two_shot)' 'onebit+ef+via(two_shot)' onebit+ef 'quant(bits=4)+via(two_shot)' 'quant(bits=4)'
  'quant(bits=8)' 'topk(ratio=0.01)+ef')
program=build/gradwire
out=build/lab
name=lab
# shellcheck source=bench/lab/link.sh
source bench/lab/link.sh
work=$out/.run-$run

# start RANK: in the background, in its namespace and on its core; $! is the rank itself.
start() {
  local rank=$1
  RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 GRADWIRE_INTERFACE=$interface \
    GRADWIRE_RENDEZVOUS=tcp://${addresses[0]}:29500 \
    exec ip netns exec "${spaces[rank]}" taskset -c "${cores[rank]}" "$program" sweep --transport gloo \
    --spec "${specs[@]}" --min-bytes "$bytes" --max-bytes "$bytes" --iters "$iterations" --warmup 1 --overlap \
    --count-interface "$interface" "${@:2}"
}

# Both ranks; rank 0 writes the records, and its bar on a terminal.
measure() {
  local rate=$1 status=0 first second
  rm -f "$work/sweep.jsonl"
  start 0 --json "$work/sweep.jsonl" >"$work/rank0.log" &
  first=$!
  start 1 --quiet >"$work/rank1.log" 2>&1 &
  second=$!
  wait "$first" || status=$?
  wait "$second" || status=$?
  [[ $status -ne 0 ]] || return 0
  # A wrong element is for the table; anything else has ended the run.
  [[ $status -eq 1 ]] && grep -q FAILED "$work/rank0.log" && return 0
  sed 's/^/rank 1: /' "$work/rank1.log" >&2
  die "the run at $rate ended with status $status; what the ranks said stands above"
}

need_link
[[ -x $program ]] || die "no $program; run: make lab"
make_link
echo "lab: $bytes bytes of f32 on each of 2 ranks over gloo, cores ${cores[*]}, load $(cut -d' ' -f1-3 /proc/loadavg)"
failed=0
for rate in "${rates[@]}"; do
  shape "$rate"
  measure "$rate"
  awk -v rate="$rate" -v lab="$work/lab.jsonl" -f bench/lab/table.awk "$work/sweep.jsonl" || failed=1
  cp "$work/lab.jsonl" "$work/done.jsonl"
  mv "$work/done.jsonl" "$out/lab.jsonl"
done
echo "lab: records in $out/lab.jsonl, load $(cut -d' ' -f1-3 /proc/loadavg)"
[[ $failed -eq 0 ]] || echo "lab: a check FAILED, see above" >&2
exit "$failed"
