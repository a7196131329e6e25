import os, sys
sys.stderr.write("x")
os.close(1)
print("lost")
