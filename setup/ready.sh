# Whether an earlier set-up still stands. Used by `kw` on every start, so it forks nothing but one `find`.

# .kw/ready: line 1 the checkout's place, 2 what the choice of Python rests on, 3 the chosen Python, 4 what goes on its
# path. Its time is the moment at which that set-up began.
read_ready() { mapfile -t ready <"$KW_HOME/.kw/ready"; }

# is_ready: fills `ready`; false where anything changed.
is_ready() {
  local changed
  [[ -r $KW_HOME/.kw/ready && -x $KW_HOME/build/kw ]] || return 1
  read_ready
  [[ ${#ready[@]} -eq 4 && ${ready[0]} == "$KW_HOME" && -x ${ready[2]} ]] || return 1
  [[ ${ready[1]} == "$KW_PYTHON_KEY" || ${KW_PYTHON:-} == "${ready[2]}" ]] || return 1
  # Folders count too: a removed file shows in its folder's time.
  changed=$(find "$KW_HOME"/{src,cmake,setup,CMakeLists.txt,python/kernelwright/__init__.py} -newer "$KW_HOME/.kw/ready" -print -quit 2>/dev/null)
  [[ -z $changed ]]
}
