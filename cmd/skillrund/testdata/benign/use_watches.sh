#!/bin/bash
# tail -f prints appended text of files in the workspace, in HOME and in TMPDIR.
set -eu
for dir in . "$HOME" "$TMPDIR"; do
  echo one >"$dir/watched.log"
  coproc tail -n +1 -f "$dir/watched.log"
  pid=$COPROC_PID
  read -r line <&"${COPROC[0]}"
  [ "$line" = one ]
  echo two >>"$dir/watched.log"
  read -r line <&"${COPROC[0]}"
  [ "$line" = two ]
  kill "$pid"
  wait "$pid" || true
done
echo ok
