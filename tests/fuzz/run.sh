#!/usr/bin/env bash
# Fuzz what reads text that another process or a person wrote, under the address and undefined-behaviour sanitizers:
#
#     tests/fuzz/run.sh [EXECUTIONS]
#
# EXECUTIONS (2500000) of each of graph_text, graph_json, kernel_text, protocol, schedule and tile_text, or of those in FUZZERS. It
# takes clang 16 or later (CXX) with compiler-rt. An input that breaks a reader is kept in build-fuzz/; the fuzzer run on that
# file shows the fault again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
executions=${1:-2500000}
build=build-fuzz
compiler=${CXX:-$(type -P clang++-19 clang++-16 clang++ | head -n 1 || true)}
if [[ -z $compiler ]]; then
  echo "there is no clang++: apt-get install clang-16 libclang-rt-16-dev, or set CXX" >&2
  exit 3
fi
./kw --version >/dev/null
python=$(sed -n 3p .kw/ready)
mkdir -p "$build"
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DKW_FUZZERS=ON -DKW_STATIC=OFF >"$build/configure.log" ||
  { cat "$build/configure.log" >&2; exit 3; }
read -ra fuzzers <<<"${FUZZERS:-graph_text graph_json kernel_text protocol schedule tile_text}"
ninja -C "$build" "${fuzzers[@]/#/fuzz_}"
"$python" tests/fuzz/seeds.py "$build/seeds"
for fuzzer in "${fuzzers[@]}"; do
  mkdir -p "$build/corpus/$fuzzer"
  began=$SECONDS
  "$build/tests/fuzz/fuzz_$fuzzer" -runs="$executions" -max_len=16384 -rss_limit_mb=4096 -timeout=20 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$build/$fuzzer-" \
    "$build/corpus/$fuzzer" "$build/seeds/$fuzzer" >"$build/$fuzzer.log" 2>&1 ||
    { tail -n 40 "$build/$fuzzer.log" >&2; echo "fuzz_$fuzzer found a fault" >&2; exit 1; }
  echo "$fuzzer: $executions executions, clean, $((SECONDS - began)) s"
done
