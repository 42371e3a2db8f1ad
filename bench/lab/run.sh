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
# Alone in its namespace, so names and addresses cannot clash with anything; the namespaces' own names are this run's.
interface=lab0
addresses=(10.77.0.1 10.77.0.2)
run=$$-$RANDOM
spaces=("gradwire-lab-$run-0" "gradwire-lab-$run-1")
work=$out/.run-$run

skip() {
  echo "lab: skipped: $1"
  exit 0
}
die() {
  echo "lab: $1" >&2
  exit 2
}

# Every rank lives in one of the namespaces, and the link goes with them.
# shellcheck disable=SC2317  # called by the trap
cleanup() {
  local space
  exec 2>/dev/null # bash would announce every rank that ends here
  for space in "${spaces[@]}"; do
    ip netns pids "$space" | xargs -r kill -KILL || true
    ip netns delete "$space" || true
  done
  wait
  rm -rf "$work"
}

require() {
  local tool
  [[ $(uname -s) == Linux ]] || skip "network namespaces are Linux's"
  [[ $(id -u) -eq 0 ]] || skip "network namespaces and tc need root; run: sudo make lab"
  for tool in ip tc; do
    command -v $tool >/dev/null || skip "no '$tool'; install iproute2"
  done
  command -v taskset >/dev/null || skip "no 'taskset'; install util-linux"
  [[ -x $program ]] || die "no $program; run: make lab"
}

make_link() {
  local end why
  if ! why=$({ ip netns add "${spaces[0]}" && ip netns add "${spaces[1]}"; } 2>&1); then
    skip "no network namespaces here (${why//$'\n'/; }); a container needs --privileged"
  fi
  if ! why=$(ip link add "$interface" netns "${spaces[0]}" type veth peer name "$interface" netns "${spaces[1]}" 2>&1)
  then
    skip "no veth pair (${why//$'\n'/; }); load the module: modprobe veth"
  fi
  for end in 0 1; do
    # The one that every kernel has and lets a namespace choose. BBR, which some systems set, paces by an estimate that
    # a few short messages do not give.
    ip netns exec "${spaces[end]}" sh -c 'echo reno >/proc/sys/net/ipv4/tcp_congestion_control'
    ip -n "${spaces[end]}" link set lo up
    ip -n "${spaces[end]}" address add "${addresses[end]}/24" dev "$interface"
    ip -n "${spaces[end]}" link set "$interface" up
  done
}

# burst: what may pass at once after a pause, so it must be small against what a method sends: 72 KiB are 0.6 ms at
#   1 Gbit/s, where onebit's 3.2 MB take 26 ms. It must hold one TCP super-segment (64 KiB and its headers), or tbf cuts
#   each one up itself, at the cost of the ranks' cores.
# latency: the queue behind it, 6 MB at 1 Gbit/s. `tc -s qdisc` showed no packet dropped at either rate, so the link
#   itself makes nothing go out twice.
# tbf counts the headers of every packet that a super-segment becomes, but not Ethernet's preamble, checksum and gap:
# 100 MB take 837 ms at 1 Gbit/s, on a real link 1.6 % more.
shape() {
  local rate=$1 end why
  for end in 0 1; do
    tc -n "${spaces[end]}" qdisc delete dev "$interface" root 2>/dev/null || true
    [[ $rate != unshaped ]] || continue
    if ! why=$(tc -n "${spaces[end]}" qdisc add dev "$interface" root tbf rate "$rate" burst 72kb latency 50ms 2>&1); then
      [[ $why == *"kind is unknown"* || $why == *"No such file"* ]] || die "tc refuses rate '$rate': ${why//$'\n'/; }"
      skip "no tbf in this kernel (${why//$'\n'/; }); load the module: modprobe sch_tbf (Debian: it is in linux-image-*)"
    fi
  done
}

# The first and the last core this process may use: with hyper-threads they are rarely two of one core.
pick_cores() {
  local list first last
  list=$(awk '$1 == "Cpus_allowed_list:" { print $2 }' /proc/self/status)
  first=${list%%[-,]*}
  last=${list##*[-,]}
  [[ $first != "$last" ]] || echo "lab: one core for two ranks: encoding and decoding take twice as long"
  cores=("$first" "$last")
}

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

require
pick_cores
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mkdir -p "$work"
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
