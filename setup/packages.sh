# System packages: which are missing, and how to get them.

# One line a package: its Debian name, then the command that shows that it is there; without one, dpkg is asked.
packages_to_build='
g++ c++
cmake cmake
ninja-build ninja
nlohmann-json3-dev
libcli11-dev
libfmt-dev
libsqlite3-dev
libedit-dev
'
packages_to_test='
libgtest-dev
'

# missing_packages LINES: their names, one a line.
missing_packages() {
  local name command ask=()
  while read -r name command; do
    [[ -z $name ]] && continue
    if [[ -n $command ]]; then
      type -P "$command" >/dev/null || printf '%s\n' "$name"
    else
      ask+=("$name")
    fi
  done <<<"$1"
  if type -P dpkg-query >/dev/null; then
    local installed
    installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${ask[@]}" 2>/dev/null)
    for name in "${ask[@]}"; do
      [[ $'\n'$installed$'\n' == *$'\n'"$name installed"$'\n'* ]] || printf '%s\n' "$name"
    done
  fi
}

# install_packages OPTIONAL NAME…: by apt-get, as root or through sudo without a password. OPTIONAL ones are asked for
# in the same go, but no one has to type them.
install_packages() {
  local optional=$1 as_root=() all=()
  shift
  if ! type -P apt-get >/dev/null; then
    die 3 "these are missing, and there is no apt-get to install them: $*" \
      "Install what your system calls them (a C++20 compiler, CMake >= 3.22, Ninja, nlohmann-json, CLI11, fmt, SQLite, libedit, Python >= 3.10 with venv)," \
      "then: KW_SKIP_PACKAGES=1 ./kw"
  fi
  if [[ $EUID != 0 ]]; then
    if type -P sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      # All in one go, so that no later command has to ask again.
      mapfile -t all < <(printf "%s\n" "$@"; missing_packages "$packages_to_test")
      mapfile -t all < <(printf '%s\n' "${all[@]}" | awk '!seen[$0]++')
      die 3 "system packages are missing, and installing them takes root. Type this, then the same command again:" \
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends ${all[*]}"
    fi
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  doing "installing $*${optional:+ $optional}"
  # A set-up that was interrupted while dpkg ran leaves packages half configured.
  run_logged "${as_root[@]}" dpkg --configure -a || failed 3 "dpkg could not finish what an earlier run began"
  run_logged "${as_root[@]}" apt-get update || failed 3 "apt-get update failed"
  # shellcheck disable=SC2086  # OPTIONAL is a list of words
  run_logged "${as_root[@]}" apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" $optional ||
    failed 3 "apt-get could not install $*"
}

# step_packages WANTS_TESTS NEEDS_VENV
step_packages() {
  local missing=() optional=
  step "System packages"
  [[ -n ${KW_SKIP_PACKAGES:-} ]] && return
  mapfile -t missing < <(
    missing_packages "$packages_to_build"
    [[ $1 == 1 ]] && missing_packages "$packages_to_test"
    [[ $2 == 1 ]] && missing_python_packages
  )
  [[ ${#missing[@]} == 0 ]] && return
  type -P ccache >/dev/null || optional=ccache
  install_packages "$optional" "${missing[@]}"
  hash -r
}
