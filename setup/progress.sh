# Progress and errors of the set-up, all on stderr: stdout belongs to the program that runs afterwards.

log=$KW_HOME/.kw/setup.log
step_count=4
step_number=0
step_title=
step_shown=0
child=

say() { printf '%s\n' "$*" >&2; }

# die CODE LINE…: ends the set-up. Codes: 3 something is missing on this machine, 4 our own fault.
die() {
  local code=$1
  shift
  clear_line
  say "kw: $1"
  shift
  local line
  for line in "$@"; do say "    $line"; done
  exit "$code"
}

clear_line() { [[ -t 2 ]] && printf '\r\033[K' >&2; return 0; }

# step TITLE: names the next step; it is printed once there is something to do in it.
step() {
  step_number=$((step_number + 1))
  step_title=$1
  step_shown=0
}

# doing WHAT: prints the step's line.
doing() {
  if [[ $step_shown == 0 ]]; then
    say "[$step_number/$step_count] $step_title"
    step_shown=1
  fi
  say "      $1"
  printf '\n=== %s: %s\n' "$step_title" "$1" >>"$log"
}

last_log_line() {
  local columns=${COLUMNS:-100} line
  # Not the command itself, which says less than the line above it.
  line=$(tail -c 2000 "$log" 2>/dev/null | tr '\r\t' '\n ' | grep -v '^ *$\|^\$ \|^=== ' | tail -n 1)
  printf '%s' "${line:0:$((columns - 25))}"
}

# run_logged COMMAND…: runs it with its output in the log, shows the time it has taken so far and the log's
# last line (on a terminal all the time, otherwise every 15 seconds), and returns its status.
run_logged() {
  local began=$SECONDS next=15 status line
  printf '$ %s\n' "$*" >>"$log"
  # A process group of its own, so that Ctrl-C can end everything it has started.
  set -m
  "$@" >>"$log" 2>&1 </dev/null &
  child=$!
  set +m
  local nap naps=(0.02 0.03 0.05 0.1 0.1 0.2)
  while kill -0 "$child" 2>/dev/null; do
    nap=${naps[0]:-0.5}
    naps=("${naps[@]:1}")
    sleep "$nap"
    if [[ -t 2 ]]; then
      printf '\r\033[K      %4d s  %s' $((SECONDS - began)) "$(last_log_line)" >&2
    elif ((SECONDS - began >= next)); then
      line=$(last_log_line)
      say "      $((SECONDS - began)) s${line:+  $line}"
      next=$((next + 15))
    fi
  done
  wait "$child"
  status=$?
  child=
  clear_line
  [[ $status == 0 && $((SECONDS - began)) -gt 0 ]] && say "      done in $((SECONDS - began)) s"
  return $status
}

on_interrupt() {
  trap '' INT TERM HUP
  [[ -n $child ]] && kill -TERM -- "-$child" 2>/dev/null
  clear_line
  say "kw: interrupted during \"$step_title\"; the same command goes on from here."
  exit 130
}

# failed CODE WHAT: like die, with the reason that the log's end shows.
failed() {
  local code=$1 what=$2 since
  since=$(tac "$log" | sed '/^\$ /q' | head -n 400)
  if grep -qi 'no space left on device\|disk quota exceeded' <<<"$since"; then
    die 3 "$what: the disk is full." "$(df -Ph "$KW_HOME" | awk 'NR == 2 {print $4 " free on " $6}')" \
      "About 3 GB are needed. Make room, then run the same command again." "Log: $log"
  fi
  if grep -qi 'temporary failure resolving\|could not resolve\|name resolution\|network is unreachable\|newconnectionerror\|connection refused\|could not connect\|failed to establish a new connection\|connection timed out\|max retries exceeded' <<<"$since"; then
    die 3 "$what: no network." "$(grep -i 'resolv\|unreachable\|connect\|retries' <<<"$since" | tail -n 1 | cut -c1-160)" \
      "Check the connection (or the proxy: https_proxy), then run the same command again." "Log: $log"
  fi
  say "kw: $what. The end of the log:"
  tail -n 12 "$log" | cut -c1-200 | sed 's/^/    | /' >&2
  say "    Log: $log"
  exit "$code"
}
