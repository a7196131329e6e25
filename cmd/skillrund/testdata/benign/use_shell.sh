set -eu
[ "$(printf 'b\na\nb\n' | sort | uniq -c | awk '$1 == 2 {print $2}')" = b ]
echo x >"$TMPDIR/f" && sed -i 's/x/y/' "$TMPDIR/f" && [ "$(cat "$TMPDIR/f")" = y ]
coproc CAT { cat; }
echo hello >&"${CAT[1]}" && read -r got <&"${CAT[0]}" && [ "$got" = hello ]
eval "exec ${CAT[1]}>&-"
wait
mkfifo "$TMPDIR/p"
echo through >"$TMPDIR/p" &
[ "$(cat "$TMPDIR/p")" = through ]
wait
trap 'caught=1' USR1 && kill -USR1 $$ && [ "$caught" = 1 ]
diff <(seq 3) <(printf '1\n2\n3\n')
[ "$(timeout 0.1 sleep 60; echo $?)" = 124 ]
[ "$(seq 100 | xargs -P4 -n10 echo | wc -l)" = 10 ]
tee "$TMPDIR/a" "$TMPDIR/b" <<<both >/dev/null && cmp "$TMPDIR/a" "$TMPDIR/b"
(ulimit -n 64 && [ "$(ulimit -n)" = 64 ])
cat /proc/cpuinfo /proc/meminfo /proc/self/status /proc/mounts >/dev/null
hash -r && type -P python3 >/dev/null && date -u +%F >/dev/null
exec 3<>"$TMPDIR/f" && flock 3 && exec 3>&-
grep -rl y "$TMPDIR/f" >/dev/null
echo ok
