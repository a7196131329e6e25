# env: PYTHONUNBUFFERED=
import os, sys
sys.stdout.write("lost")
f = open("lost.txt", "w")
f.write("lost")
sys.stderr.write("kept\n")
os._exit(5)
