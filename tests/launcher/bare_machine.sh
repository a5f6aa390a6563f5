#!/usr/bin/env bash
# Shows that a clean clone works on a bare machine: makes a fresh Debian root with only git, bash and certificates,
# clones this checkout's HEAD into it, and runs the README's commands there.
#
#   tests/launcher/bare_machine.sh [--suite bookworm] [--mirror URL] [--keep] [--user] [COMMAND…]
#
# COMMANDs (each one argument, run by bash in the clone) replace the README's two. --user runs them as a user who is not
# root, after the system packages were installed by the command that kw tells that user to type. --keep leaves the root for a look.
# Takes root, debootstrap, about 6 GB under TMPDIR and the network; uses this machine's pip settings, proxies and certificates.
set -euo pipefail

home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
suite=bookworm
mirror=http://deb.debian.org/debian
keep=0
as_user=0
while [[ ${1:-} == --* ]]; do
  case $1 in
    --suite) suite=$2; shift 2 ;;
    --mirror) mirror=$2; shift 2 ;;
    --keep) keep=1; shift ;;
    --user) as_user=1; shift ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
  esac
done
commands=("$@")
[[ ${#commands[@]} -gt 0 ]] || commands=("./kw optimize examples/transformer_mlp.py" "./kw test --quick")
[[ $EUID == 0 ]] || { echo "bare_machine.sh: making a Debian root takes root" >&2; exit 3; }
type -P debootstrap >/dev/null || { echo "bare_machine.sh: apt-get install debootstrap" >&2; exit 3; }

# Mounts live in a namespace of their own, so that nothing can be left mounted, and removing the root afterwards
# cannot reach through a mount.
if [[ ${KW_TEST_BARE_ROOT:-} == "" ]]; then
  root=$(mktemp -d "${TMPDIR:-/tmp}/kw-bare.XXXXXX")
  # It becomes "/", which everyone may enter.
  chmod 755 "$root"
  flags=(--suite "$suite" --mirror "$mirror")
  [[ $as_user == 1 ]] && flags+=(--user)
  status=0
  KW_TEST_BARE_ROOT=$root unshare --mount --pid --fork --kill-child "$0" "${flags[@]}" "${commands[@]}" || status=$?
  if [[ $keep == 1 ]]; then echo "kept: $root"; else rm -rf --one-file-system "$root"; fi
  exit $status
fi
root=$KW_TEST_BARE_ROOT

echo "== debootstrap $suite into $root"
debootstrap --variant=minbase --include=bash,ca-certificates,git "$suite" "$root" "$mirror" >"$root.log" 2>&1 ||
  { tail -n 20 "$root.log" >&2; exit 3; }
rm -f "$root.log"

mount -t proc proc "$root/proc"
for node in null zero full random urandom tty; do
  [[ -e $root/dev/$node ]] || : >"$root/dev/$node"
  mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir -p "$root/dev/shm" && mount -t tmpfs tmpfs "$root/dev/shm"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
apt-config dump | grep -E '^Acquire::(https?|ftp)::' >"$root/etc/apt/apt.conf.d/99proxy" || true

# pip's settings, and the folders that they name on this machine (an index's files lie beside its pages).
bind_folder() {
  [[ -d $1 ]] || return 0
  mkdir -p "$root$1"
  mountpoint -q "$root$1" || mount --bind -o ro "$1" "$root$1"
}
user_home=/root
[[ $as_user == 1 ]] && user_home=/home/someone && chroot "$root" useradd --create-home --shell /bin/bash someone
for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
  [[ -f $file ]] || continue
  target=$root${file/#$HOME/$user_home}
  mkdir -p "${target%/*}"
  cp -L "$file" "$target"
done
if type -P python3 >/dev/null; then
  for value in $(python3 -m pip config list 2>/dev/null | sed "s/^[^=]*=//; s/\\\\n/ /g" | tr "'\"" '  '); do
    case $value in
      file:///*/*/*) value=${value#file://} && bind_folder "${value%/*}" ;;
      file:///* | /*) bind_folder "${value#file://}" ;;
    esac
  done
fi
passed=(HOME="$user_home" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM="${TERM:-dumb}" LANG=C.UTF-8)
while IFS= read -r setting; do passed+=("$setting"); done < <(env | grep -iE '^(PIP_[A-Z_]+|https?_proxy|no_proxy)=' || true)

clone=$root$user_home/kernelwright
git -c safe.directory='*' clone -q --no-local "$home" "$clone"
within=(chroot)
if [[ $as_user == 1 ]]; then
  chroot "$root" chown -R someone: "$user_home"
  within+=(--userspec=someone:someone)
fi

# run COMMAND: as the user, in the clone, without a terminal or input.
run() {
  echo "== \$ $1"
  local began=$SECONDS status=0
  "${within[@]}" "$root" env -i "${passed[@]}" bash -c "cd '$user_home/kernelwright' && $1" </dev/null || status=$?
  echo "== exit $status after $((SECONDS - began)) s"
  return $status
}

if [[ $as_user == 1 ]]; then
  advice=$(run "./kw --help" 2>&1) && { echo "kw did not ask for its system packages"; exit 1; }
  typed=$(grep -o 'sudo apt-get update.*' <<<"$advice" | sed 's/sudo //g') || { echo "$advice"; exit 1; }
  echo "== typing, as root: $typed"
  chroot "$root" env -i "${passed[@]}" DEBIAN_FRONTEND=noninteractive bash -c "$typed" >/dev/null
fi
failures=0
for command in "${commands[@]}"; do
  run "$command" || failures=$((failures + 1))
done
run "time ./kw --help >/dev/null" || failures=$((failures + 1))
echo "== $failures of $((${#commands[@]} + 1)) commands failed"
[[ $failures == 0 ]]
