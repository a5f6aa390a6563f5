#!/usr/bin/env bash
# Our own suite on this machine's CPU, verified and timed beside eager and torch.compile, with a line per category: bench/problems_cpu.sh [OUT] [CATEGORY…]
set -euo pipefail
out=$(realpath -m "${1:-kw-problems-cpu}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
paths=(problems)
if (($# > 1)); then
  paths=("${@:2}")
  paths=("${paths[@]/#/problems/}")
fi
exec ./kw bench "${paths[@]}" --size cpu --target cpu --budget 2 --out "$out"
