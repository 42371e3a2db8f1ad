#!/usr/bin/env bash
# The main job on real data: does training with compressed gradients reach what dense training reaches?
# Six ways to send gradients and one that cannot work, SEEDS seeds each, four worker processes over Gloo.
set -euo pipefail
cd "$(dirname "$0")/.."

rm -rf demo
status=0
build/gradwire ab \
  --arm none --arm bf16 --arm onebit+ef --arm onebit --arm 'quant(bits=4)' --arm 'topk(ratio=0.01)+ef' \
  --arm 'topk(ratio=0.001)' \
  --baseline none --seeds "${SEEDS:-5}" --metric accuracy --margin 0.01 --out demo \
  --jobs 2 \
  --workload digits --ranks 4 --transport gloo --steps 300 --lr 0.1 --optimizer sgd || status=$?
# 1 is the expected answer here: an arm that is worse is what the test is for.
[[ $status -eq 0 || $status -eq 1 ]] || exit "$status"

cat <<'TEXT'

What you see: each arm trained the same network from the same seeds; only the way gradients travel differs.
  equivalent    the 90 % interval of the accuracy difference to `none` lies within ±1 percentage point
  worse         the difference is real, and topk(ratio=0.001) shows it: 99.9 % of every gradient is thrown away and,
                without +ef, never made up for. This arm is here to fail; the test exists to catch such a method.
                Plain onebit loses a little that onebit+ef keeps: that is what error feedback is for.

Next:
  demo/report.html                          learning curves, differences with their margin, bytes and time per step
  build/gradwire train --help               one training run; --trace shows communication under the backward pass
  build/gradwire sweep --help               how fast is each method at each size, and from which size on does it pay
  build/gradwire codecs                     every method with its keys
  README.md                                 about ten lines put it into your own training loop
TEXT
