# streams: lines
# The file takes a part of the last line.
import os, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (15, 15))
os.dup2(os.open("out", os.O_WRONLY | os.O_CREAT), 1)
print("first line")
print("second line", end="")
