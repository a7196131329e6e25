# env: PYTHONUNBUFFERED=
import os, sys
full = os.open("/dev/full", os.O_WRONLY)
os.dup2(full, 1)
sys.stdout.write("lost")
