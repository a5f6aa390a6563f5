#!/usr/bin/env bash
# Seconds of `pip install .` without a compiler cache, of installing the wheel, and of the example from it: bench/install_time.sh
# PyTorch is that of the checkout's Python; nothing is answered from the archive or from compiled kernels.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
home=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
./kw --version >/dev/null   # set-up is not what is timed
python=$(sed -n 3p .kw/ready)
export -n KW_PYTHON KW_PYTHONPATH KW_LIBRARY
export KW_ARCHIVE=$folder/archive.db XDG_CACHE_HOME=$folder/cache

timed() {   # timed WHAT COMMAND…
  local what=$1 began ended
  shift
  began=$(date +%s.%N)
  "$@" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; return 1; }
  ended=$(date +%s.%N)
  awk -v what="$what" -v a="$began" -v b="$ended" 'BEGIN { printf "%-46s %7.1f s\n", what, b - a }'
}

"$python" -m venv "$folder/env"
CCACHE_DISABLE=1 timed "pip install . on $(nproc) cores, nothing cached" \
  "$folder/env/bin/python" -m pip install --config-settings=build-dir="$folder/build" "$home"
"$folder/env/bin/python" -m pip uninstall -qy kernelwright
timed "setup/wheel.sh" setup/wheel.sh "$folder"
timed "pip install of the wheel" "$folder/env/bin/python" -m pip install --no-index "$folder"/kernelwright-*.whl
"$python" -c 'import torch; print(torch.__path__[0].rpartition("/")[0])' >"$("$folder/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pytorch.pth"
cd "$folder"
timed "the example from it, verified" "$folder/env/bin/kw" optimize "$home/examples/transformer_mlp.py" --budget 0 --fresh
timed "the example from it, timed beside eager" "$folder/env/bin/kw" optimize "$home/examples/transformer_mlp.py" --baseline eager --fresh
timed "the example from it, and torch.compile" "$folder/env/bin/kw" optimize "$home/examples/transformer_mlp.py" --fresh
