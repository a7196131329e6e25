import os, sys
fd = os.open("/dev/full", os.O_WRONLY)
os.dup2(fd, 1)
sys.stderr.write("x")
print("lost")
