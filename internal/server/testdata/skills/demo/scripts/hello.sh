# Says hello to its arguments, and to nobody on stderr.
echo "hello $*"
echo "nobody" >&2
exit 3
