cd /workspace
ln -s /etc/shadow out.txt
ln -s /proc/1/environ env.txt
ln -s /proc/self/root/etc/passwd magic.txt
ln -s ../../../../../../../../etc/shadow rel.txt
ln -s / rootdir
mkdir real
ln -s /etc real/link
for path in out.txt env.txt rel.txt rootdir/etc/shadow; do
	if text=$(cat "$path" 2>/dev/null) && [ -n "$text" ]; then echo "FAIL read $path"; else echo "PASS $path"; fi
done
