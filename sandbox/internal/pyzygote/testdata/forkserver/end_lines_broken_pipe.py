# streams: lines
import os
r, w = os.pipe()
os.dup2(w, 1)
os.close(w)
os.close(r)
print("lost", end="")
