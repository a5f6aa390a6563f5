# CMake and Ninja, into build/.

build=$KW_HOME/build

# build_jobs: one compiler a core, but no more than memory holds (about 1 GB each).
build_jobs() {
  local cores memory
  cores=$(nproc 2>/dev/null || echo 2)
  memory=$(awk '/MemAvailable/ {print int($2 / 1000000)}' /proc/meminfo 2>/dev/null)
  ((memory >= 1 && memory < cores)) && cores=$memory
  printf '%s' "$cores"
}

# step_build WANTS_TESTS
step_build() {
  step "Build"
  # A build that a developer configured (cmake --preset release) keeps its choice.
  local target=product options=()
  [[ -f $build/build.ninja ]] || options+=(-DKW_UNITY=ON)
  if [[ $1 == 1 ]]; then
    target=all
    options+=(-DKW_TESTS=ON)
  fi
  # Left by another place or another generator, CMake would refuse it.
  if [[ -f $build/CMakeCache.txt ]] &&
    ! { grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$KW_HOME" "$build/CMakeCache.txt" && grep -qx 'CMAKE_GENERATOR:INTERNAL=Ninja' "$build/CMakeCache.txt"; }; then
    rm -rf "$build"
  fi
  if [[ ! -f $build/build.ninja ]] || { [[ $1 == 1 ]] && ! grep -qx 'KW_TESTS:BOOL=ON' "$build/CMakeCache.txt"; }; then
    doing "configuring"
    run_logged cmake -S "$KW_HOME" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "${options[@]}" || failed 3 "CMake could not configure the build"
  fi
  doing "compiling ($(build_jobs) at a time$(type -P ccache >/dev/null && echo ', through ccache'))"
  # Relative paths, so that other checkouts find what this one compiled.
  export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$KW_HOME} NINJA_STATUS='[%f/%t] '
  run_logged cmake --build "$build" --target "$target" -j "$(build_jobs)" || failed 4 "the build failed"
}
