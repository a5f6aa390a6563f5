#!/usr/bin/env bash
# Builds a wheel for any Linux with a glibc as old as its tag says: setup/wheel.sh [FOLDER]     (dist/ otherwise)
# It packs what ./kw has built, so that the checkout's build is what users get; pip brings scikit-build-core and auditwheel.
set -euo pipefail
KW_HOME=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd -P)
mkdir -p "${1:-$KW_HOME/dist}"
folder=$(cd "${1:-$KW_HOME/dist}" && pwd -P)

"$KW_HOME/kw" --version   # brings build/ up to date
# shellcheck source=setup/ready.sh
source "$KW_HOME/setup/ready.sh"
read_ready
python=${ready[2]}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/built"
strip -o "$scratch/built/kw" "$KW_HOME/build/kw"
strip --strip-unneeded -o "$scratch/built/libkernelwright.so" "$KW_HOME/build/libkernelwright.so"

pip_options=(--quiet --disable-pip-version-check --no-input --retries 2)
"$python" -m venv "$scratch/tools"
"$scratch/tools/bin/python" -m pip install "${pip_options[@]}" -r "$KW_HOME/setup/requirements/wheel.txt"
"$scratch/tools/bin/python" -m pip wheel "${pip_options[@]}" --no-deps --wheel-dir "$scratch/plain" \
  --config-settings=cmake.define.KW_PREBUILT="$scratch/built" --config-settings=build-dir="$scratch/cmake" "$KW_HOME"
# It reads the versions of glibc's symbols that the library asks for, and names the wheel after the oldest glibc that has them.
PATH=$scratch/tools/bin:$PATH \
  auditwheel repair --plat auto --wheel-dir "$scratch/named" "$scratch"/plain/kernelwright-*.whl >"$scratch/log" 2>&1 ||
  { cat "$scratch/log" >&2; exit 1; }
mv "$scratch"/named/kernelwright-*.whl "$folder/"
ls -sh "$folder"/kernelwright-*.whl
