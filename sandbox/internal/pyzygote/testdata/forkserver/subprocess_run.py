import subprocess, sys
print(subprocess.run([sys.executable, "-c", "import sys; print(sys.argv, sys.flags)", "a"], capture_output=True))
print(subprocess.run("echo out; echo err >&2; exit 3", shell=True, capture_output=True))
