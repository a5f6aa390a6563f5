#!/usr/bin/env bash
# Seconds from the command to a verified kernel, nothing answered from the archive or the cache of compiled kernels: bench/first_kernel.sh [PROBLEM] [RUNS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
problem=${1:-examples/transformer_mlp.py}
runs=${2:-5}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
./kw --help >/dev/null   # set-up is not what is timed
export XDG_CACHE_HOME=$folder/cache TRITON_CACHE_DIR=$folder/cache/triton
for ((run = 0; run < runs; run++)); do
  rm -rf "$XDG_CACHE_HOME"
  began=$(date +%s.%N)
  ./kw optimize "$problem" --fresh --budget 0 --quiet -o "$folder/candidate.py"
  ended=$(date +%s.%N)
  awk -v a="$began" -v b="$ended" 'BEGIN { printf "%.2f\n", b - a }'
done | sort -n | awk '{ all[NR] = $1 } END { printf "verified after %.2f s (median of %d; %.2f to %.2f)\n", all[int((NR + 1) / 2)], NR, all[1], all[NR] }'
