# streams: lines
import os, sys
r, w = os.pipe()
os.dup2(w, 1)
os.set_blocking(1, False)
for text in "fits", "y" * 999999, "more":
    try:
        print(text, flush=True)
    except BlockingIOError as e:
        sys.stderr.write("%s: %s\n" % (text[:4], e))
sys.stderr.write("%r\n" % os.read(r, 1 << 20)[:10])  # now the last flush succeeds
