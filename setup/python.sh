# The Python that runs the worker: the user's own where it has PyTorch, otherwise an environment under .kw/.

venv=$KW_HOME/.kw/venv
# Packages that the user's own Python lacks go here, never into it.
beside=$KW_HOME/.kw/beside
requirements=$KW_HOME/setup/requirements
pip_options=(--disable-pip-version-check --no-input --retries 2)
cpu_index=https://download.pytorch.org/whl/cpu
python=

# torch_of PYTHON: "ok VERSION", "old VERSION", "none" or "python VERSION" (itself too old). Asks the
# packages' metadata, since importing torch takes seconds.
torch_of() {
  "$1" -c '
import sys
sys.path[:] = filter(None, sys.path)  # without the current folder, whose files may have the names of modules
import re
from importlib.metadata import PackageNotFoundError, version
if sys.version_info < (3, 10):
    print("python", "%d.%d" % sys.version_info[:2])
else:
    try:
        found = version("torch")
        print("ok" if tuple(map(int, re.findall(r"\d+", found)[:2])) >= (2, 8) else "old", found)
    except PackageNotFoundError:
        print("none")
' 2>/dev/null || echo broken
}

# choose_python: sets `python` to the user's own with torch >= 2.8, or leaves it empty.
choose_python() {
  local candidate answer
  if [[ -n ${KW_PYTHON:-} ]]; then
    candidate=$(type -P "$KW_PYTHON") || die 3 "KW_PYTHON=$KW_PYTHON is not a program." \
      "Set it to a Python with PyTorch 2.8 or later, or unset it: kw then makes its own environment."
    answer=$(torch_of "$candidate")
    [[ $answer == ok* ]] || die 3 "KW_PYTHON=$KW_PYTHON has no PyTorch 2.8 or later ($(describe_torch "$answer"))." \
      "Install it there ($candidate -m pip install 'torch>=2.8'), or unset KW_PYTHON: kw then makes its own environment."
    python=$candidate
    return
  fi
  for candidate in "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" "${CONDA_PREFIX:+$CONDA_PREFIX/bin/python}" "$(type -P python3)"; do
    [[ -n $candidate && -x $candidate ]] || continue
    answer=$(torch_of "$candidate")
    if [[ $answer == ok* ]]; then
      python=$candidate
      return
    fi
  done
}

describe_torch() {
  case $1 in
    old*) printf 'it has %s' "${1#old }" ;;
    none) printf 'it has none' ;;
    python*) printf 'it is Python %s; 3.10 is needed' "${1#python }" ;;
    *) printf 'it does not start' ;;
  esac
}

# base_python: a Python >= 3.10 to make the environment from; fails where there is none.
base_python() {
  local candidate
  for candidate in $(type -aP python3 python3.14 python3.13 python3.12 python3.11 python3.10); do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      printf '%s' "$candidate"
      return
    fi
  done
  return 1
}

die_python_too_old() {
  die 3 "Python 3.10 or later is needed; python3 here is $(python3 -V 2>&1)." \
    "Install a newer one and put it on PATH, or set KW_PYTHON to one that has PyTorch."
}

# missing_python_packages: what the own environment takes from the system. The headers are for the C++ that
# torch.compile and Triton build at run time.
missing_python_packages() {
  local base
  if ! base=$(base_python); then
    printf '%s\n' python3 python3-venv python3-dev
    return
  fi
  "$base" -c 'import ensurepip, venv' 2>/dev/null || printf '%s\n' python3-venv
  "$base" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    printf '%s\n' python3-dev
}

has_nvidia_driver() { [[ -e /dev/nvidiactl || -e /proc/driver/nvidia/version ]] || nvidia-smi -L >/dev/null 2>&1; }

# step_python WANTS_TESTS: leaves `python` and `python_path` set and everything installed.
step_python() {
  step "Python environment"
  python_path=$KW_HOME/python
  if [[ -z $python ]]; then
    fill_venv "$1"
    python=$venv/bin/python
    return
  fi
  fill_beside "$1"
  [[ -d $beside ]] && python_path+=:$beside
  return 0
}

fill_venv() {
  local wanted base
  wanted=$(cat "$requirements"/{torch,run}.txt)
  if [[ ! -x $venv/bin/python || $(cat "$venv/filled" 2>/dev/null) != "$wanted" ]]; then
    base=$(base_python) || die_python_too_old
    doing "making an environment in .kw/venv from $base ($("$base" -V 2>&1))"
    # From the start: a half-installed package cannot be told from a whole one, and pip keeps its downloads.
    run_logged "$base" -m venv --clear "$venv" || failed 3 "python -m venv failed"
    install_torch
    doing "installing NumPy and Triton"
    run_logged "$venv/bin/python" -m pip install "${pip_options[@]}" -r "$requirements/run.txt" || failed 3 "pip could not install the requirements"
    doing "checking that torch imports"
    run_logged "$venv/bin/python" -c 'import numpy, torch; print(torch.__version__, torch.version.cuda)' || failed 3 "the installed torch does not import"
    printf '%s' "$wanted" >"$venv/filled" || failed 3 "could not write $venv/filled"
  fi
  [[ $1 == 1 ]] || return 0
  wanted=$(cat "$requirements/test.txt")
  if [[ $(cat "$venv/filled-tests" 2>/dev/null) != "$wanted" ]]; then
    doing "installing pytest, pytest-xdist and Hypothesis"
    run_logged "$venv/bin/python" -m pip install "${pip_options[@]}" -r "$requirements/test.txt" || failed 3 "pip could not install the test requirements"
    printf '%s' "$wanted" >"$venv/filled-tests"
  fi
}

install_torch() {
  local pin
  pin=$(<"$requirements/torch.txt")
  local pip=("$venv/bin/python" -m pip install "${pip_options[@]}")
  if has_nvidia_driver; then
    local index=()
    # The build on PyPI is for CUDA 13; an older driver takes the one for CUDA 12.6.
    [[ $(nvidia-smi 2>/dev/null) == *"CUDA Version: 12."* ]] && index=(--index-url "${cpu_index%cpu}cu126")
    doing "installing $pin with CUDA (an NVIDIA driver is present; several GB)"
    run_logged "${pip[@]}" "${index[@]}" "$pin" || failed 3 "pip could not install $pin"
    return
  fi
  # The plain name on PyPI brings gigabytes of CUDA libraries; the local version +cpu never does.
  doing "installing $pin, the CPU build (no NVIDIA driver here)"
  run_logged "${pip[@]}" "$pin+cpu" ||
    { say "      not in the configured indexes; asking $cpu_index" && run_logged "${pip[@]}" --index-url "$cpu_index" "$pin+cpu"; } ||
    failed 3 "pip could not find $pin+cpu (KW_PYTHON=/path/to/python uses a Python that already has PyTorch)"
  "$venv/bin/python" -c '
import sys
from importlib.metadata import distributions, version
cuda = [d.name for d in distributions() if d.name.startswith("nvidia-")]
sys.exit(bool(cuda) or not version("torch").endswith("+cpu"))' || failed 3 "pip installed a CUDA build of PyTorch"
}

cache_tag() { "$python" -c 'import sys; print(sys.implementation.cache_tag)'; }

# fill_beside WANTS_TESTS: for the user's own Python, what it lacks, in a folder of ours on its path.
fill_beside() {
  local tag lacking name pinned=()
  tag=$(cache_tag)
  # Left by another Python: compiled packages would not fit.
  [[ -d $beside && $(cat "$beside/filled" 2>/dev/null) != "$tag" ]] && rm -rf "$beside"
  lacking=$(PYTHONPATH=$beside "$python" -c '
import platform, sys
from importlib.util import find_spec
names = ["numpy"] + ["triton"] * (platform.machine() == "x86_64") + ["pytest", "pytest-xdist", "hypothesis"] * int(sys.argv[1])
print(*[name for name in names if find_spec(name.removeprefix("pytest-")) is None])' "$1")
  [[ -z $lacking ]] && return
  doing "installing what $python lacks beside it, in .kw/beside: $lacking"
  "$python" -m pip --version >>"$log" 2>&1 || die 3 "$python has no pip, and lacks: $lacking" \
    "Install them there, or unset KW_PYTHON and leave the environment: kw then makes its own."
  for name in $lacking; do
    mapfile -t -O "${#pinned[@]}" pinned < <(grep -h "^$name[=>]" "$requirements"/{run,test}.txt)
  done
  mkdir -p "$beside" && printf '%s' "$tag" >"$beside/filled" || failed 3 "could not write $beside"
  run_logged "$python" -m pip install "${pip_options[@]}" --upgrade --target "$beside" "${pinned[@]}" || failed 3 "pip could not install $lacking"
}
