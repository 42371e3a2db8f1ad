#!/usr/bin/env bash
# The main job on real data: does training with compressed gradients reach what dense training reaches?
set -euo pipefail
cd "$(dirname "$0")/.."
