set -eu
mkdir -p "$TMPDIR/t/deep/er"
echo x >"$TMPDIR/t/deep/er/f"
ln -s f "$TMPDIR/t/deep/er/link"
ln "$TMPDIR/t/deep/er/f" "$TMPDIR/t/hard"
chmod 750 "$TMPDIR/t/deep"
tar -C "$TMPDIR" -czf all.tar.gz t
mkdir "$TMPDIR/out"
tar -C "$TMPDIR/out" -xpzf all.tar.gz
diff -r "$TMPDIR/t" "$TMPDIR/out/t"
[ "$(stat -c %a "$TMPDIR/out/t/deep")" = 750 ]
[ "$(readlink "$TMPDIR/out/t/deep/er/link")" = f ]
tar tzf all.tar.gz | grep -qx t/deep/er/f
if command -v xz >/dev/null; then tar -C "$TMPDIR" -cJf "$TMPDIR/a.tar.xz" t && tar tJf "$TMPDIR/a.tar.xz" >/dev/null; fi
tar cf - -C "$TMPDIR" t | tar xf - -C "$TMPDIR/out" --overwrite
cp -a "$TMPDIR/t" "$TMPDIR/u" && mv "$TMPDIR/u" "$TMPDIR/v" && rm -rf "$TMPDIR/v"
find "$TMPDIR/t" -type f -print0 | xargs -0 sha256sum | sort >/dev/null
echo ok
