#!/usr/bin/env bash
# What communication leaves of a training step in PyTorch, of DDP itself, of its hooks and of gradwire: two ranks in two
# network namespaces, joined by a veth pair of a known rate, one core each.
# usage: bench/pytorch/exposed.sh [RATE ...]     tc's units; default: unshaped 1gbit 200mbit
#   STEPS=5   timed steps an arm      ARMS="ddp onebit+ef"   instead of all
# Needs root and `make python` with torch in .venv. Leaves build/lab/exposed.jsonl. Exit status: 0 done, or skipped with the
# reason; 2 something is missing. An arm that aborts or hangs is shown and does not end the run.
set -euo pipefail
cd "$(dirname "$0")/../.."

rates=("$@")
[[ $# -gt 0 ]] || rates=(unshaped 1gbit 200mbit)
steps=${STEPS:-5}
read -r -a arms <<<"${ARMS:-ddp none onebit+ef quant(bits=4)+ef bf16 fp16 powersgd-1 powersgd-2 powersgd-4 int8}"
python=.venv/bin/python
out=build/lab
name=exposed
# shellcheck source=bench/lab/link.sh
source bench/lab/link.sh
work=$out/.run-$run

# start RANK ARM RATE ...: in the background, in its namespace and on its core.
start() {
  local rank=$1
  RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=${addresses[0]} MASTER_PORT=29500 OMP_NUM_THREADS=1 \
    GLOO_SOCKET_IFNAME=$interface GRADWIRE_INTERFACE=$interface \
    exec ip netns exec "${spaces[rank]}" taskset -c "${cores[rank]}" timeout 300 "$python" bench/pytorch/exposed.py \
    --arm "$2" --rate "$3" --steps "$steps" "${@:4}"
}

measure() {
  local arm=$1 rate=$2 status=0 first second
  start 0 "$arm" "$rate" --json "$out/exposed.jsonl" 2>"$work/rank0.log" &
  first=$!
  start 1 "$arm" "$rate" >"$work/rank1.log" 2>&1 &
  second=$!
  wait "$first" || status=$?
  wait "$second" || status=$?
  [[ $status -eq 0 ]] || printf '%-18s did not run: status %s: %s\n' "$arm" "$status" "$(tail -n 1 "$work/rank0.log")"
}

need_link
"$python" -c 'import torch, gradwire.torch' 2>/dev/null || die "no torch or no gradwire in .venv; run: make python"
make_link
: >"$out/exposed.jsonl"
for rate in "${rates[@]}"; do
  shape "$rate"
  echo "$rate: load $(cut -d' ' -f1-3 /proc/loadavg)"
  for arm in "${arms[@]}"; do measure "$arm" "$rate"; done
done
"$python" bench/pytorch/table.py "$out/exposed.jsonl"
