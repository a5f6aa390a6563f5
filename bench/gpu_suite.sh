#!/usr/bin/env bash
# A whole suite on this machine's GPUs, verified and timed beside eager and torch.compile: bench/gpu_suite.sh SUITE [OUT] [DEVICES]
set -euo pipefail
suite=$(realpath "${1:?usage: bench/gpu_suite.sh SUITE [OUT] [DEVICES]}")
out=$(realpath -m "${2:-kw-bench}")
devices=${3:-$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
./kw bench "$suite" --target triton --devices "$devices" --jobs 4 --budget 2 --out "$out"
python3 bench/suite_table.py "$out/results.jsonl"
