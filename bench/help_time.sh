#!/usr/bin/env bash
# Milliseconds of `kw --help`, launcher included, once set up: bench/help_time.sh [RUNS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=${1:-21}
./kw --help >/dev/null
for ((run = 0; run < runs; run++)); do
  began=$(date +%s%N)
  ./kw --help >/dev/null
  ended=$(date +%s%N)
  echo $(((ended - began) / 1000))
done | sort -n | awk '{ all[NR] = $1 } END { printf "kw --help: %.1f ms (median of %d; %.1f to %.1f)\n", all[int((NR + 1) / 2)] / 1000, NR, all[1] / 1000, all[NR] / 1000 }'
