import io, os, sys
sys.stderr.write("x")
sys.stdout = io.TextIOWrapper(io.open(os.open("/dev/full", os.O_WRONLY), "wb"))
print("lost at the end")
