import sys
print("before")
sys.stdout.detach()
sys.stderr.write("x")
