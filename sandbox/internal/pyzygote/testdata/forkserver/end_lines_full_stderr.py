# streams: lines
import os, sys
os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
sys.stderr.write("lost")
