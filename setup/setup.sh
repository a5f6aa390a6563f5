#!/usr/bin/env bash
# Makes this checkout ready to run: setup.sh WANTS_TESTS WANTS_MODELS (models.sh). Called by `kw`, which passes KW_HOME and KW_PYTHON_KEY.
# Each step looks first and acts only where it must, so that stopping at any point and starting again goes on.
set -u
wants_tests=$1
wants_models=${2:-}

mkdir -p "$KW_HOME/.kw" 2>/dev/null && : 2>/dev/null >>"$KW_HOME/.kw/lock" || {
  printf '%s\n' "kw: cannot write in $KW_HOME/.kw, where the set-up keeps its state." \
    "    Use a checkout of your own, or have its owner run ./kw once." >&2
  exit 3
}

for part in ready progress packages python models build; do
  # shellcheck source=/dev/null
  source "$KW_HOME/setup/$part.sh"
done
[[ $(uname -s) == Linux ]] || die 3 "kw runs on Linux; this is $(uname -s)."
trap on_interrupt INT TERM HUP

# One set-up at a time: a second one waits, then finds everything done.
exec 8>>"$KW_HOME/.kw/lock"
if type -P flock >/dev/null && ! flock -n 8; then
  say "kw: another kw is setting up this checkout; waiting for it (its log: $KW_HOME/.kw/setup.log)"
  flock 8
  [[ $wants_tests == 0 && -z $wants_models ]] && is_ready && exit 0
fi

[[ -n $wants_models ]] && step_count=5
began=$SECONDS
first_time=0
[[ -e $KW_HOME/.kw/ready ]] || first_time=1
: >"$log" || die 3 "cannot write $log"
# The mark's time is now, so that what is edited while the build runs counts as newer than it.
: >"$KW_HOME/.kw/ready.next"
[[ $first_time == 1 ]] && say "kw: first use, setting up (log: $log)"

step "Choosing a Python"
choose_python
if [[ $first_time == 1 ]]; then
  doing "${python:-"none with PyTorch 2.8 or later found; making one under .kw/venv"}"
fi
needs_venv=0
[[ -z $python && ! -x $venv/bin/python ]] && needs_venv=1
# What the system's packages offer is no newer than what is there.
[[ $needs_venv == 1 ]] && type -P python3 >/dev/null && ! base_python >/dev/null && die_python_too_old
step_packages "$wants_tests" "$needs_venv"
step_python "$wants_tests"
step_build "$wants_tests"
step_models "$wants_models"

touch -r "$KW_HOME/.kw/ready.next" "$KW_HOME/.kw/mark"
printf '%s\n' "$KW_HOME" "$KW_PYTHON_KEY" "$python" "$python_path" >"$KW_HOME/.kw/ready.next" || failed 3 "could not write .kw/ready"
touch -r "$KW_HOME/.kw/mark" "$KW_HOME/.kw/ready.next"
mv "$KW_HOME/.kw/ready.next" "$KW_HOME/.kw/ready"
rm -f "$KW_HOME/.kw/mark"
[[ $first_time == 1 ]] && say "kw: ready after $((SECONDS - began)) s"
exit 0
