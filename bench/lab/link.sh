# shellcheck shell=bash
# Two network namespaces joined by a veth pair of a known rate. Sourced by scripts that measure over it, which set
#   name   what comes before every message          work   a folder of their own, removed in the end
# and call need_link, make_link, and shape RATE before each measurement. Sets interface, addresses, spaces and cores.

# Alone in its namespace, so names and addresses cannot clash with anything; the namespaces' own names are this run's.
interface=lab0
addresses=(10.77.0.1 10.77.0.2)
run=$$-$RANDOM
spaces=("gradwire-lab-$run-0" "gradwire-lab-$run-1")

skip() {
  echo "$name: skipped: $1"
  exit 0
}
die() {
  echo "$name: $1" >&2
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

need_link() {
  local tool
  [[ $(uname -s) == Linux ]] || skip "network namespaces are Linux's"
  [[ $(id -u) -eq 0 ]] || skip "network namespaces and tc need root; run it with sudo"
  for tool in ip tc; do
    command -v $tool >/dev/null || skip "no '$tool'; install iproute2"
  done
  command -v taskset >/dev/null || skip "no 'taskset'; install util-linux"
}

make_link() {
  local end why
  trap cleanup EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  mkdir -p "$work"
  pick_cores
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
  [[ $first != "$last" ]] || echo "$name: one core for two ranks: encoding and decoding take twice as long"
  cores=("$first" "$last")
}
