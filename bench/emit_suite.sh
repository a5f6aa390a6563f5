#!/usr/bin/env bash
# Captures and emits every problem of a suite for Triton and compiles every kernel to sm_90 machine code, without a GPU:
# bench/emit_suite.sh SUITE [OUT]
set -euo pipefail
suite=$(realpath "${1:?usage: bench/emit_suite.sh SUITE [OUT]}")
out=$(realpath -m "${2:-kw-emit}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec ./kw bench "$suite" --emit-only --target triton --jobs "$(nproc)" --out "$out"
