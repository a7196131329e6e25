# streams: lines
# Python's flush at the end fails, and a later one would not.
import os, sys
r, w = os.pipe()
os.dup2(w, 1)
os.set_blocking(1, False)
while True:
    try:
        os.write(1, b"x" * 4096)
    except BlockingIOError:
        break
sys.unraisablehook = lambda _: os.read(r, 1 << 20)
print("late", end="")
