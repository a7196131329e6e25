# Prints size and SHA-256 of its arguments, and whether they can be executed.
for f in "$@"; do
	wc -c < "$f"
	sha256sum < "$f"
	test -x "$f" && echo executable
done
exit 0
