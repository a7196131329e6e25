import os, sys
r, w = os.pipe()
os.write(w, b"\xff\r\nx\rz")
os.close(w)
os.dup2(r, 0)
print(ascii(sys.stdin.read()))
