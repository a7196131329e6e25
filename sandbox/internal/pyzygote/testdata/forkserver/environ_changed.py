import os, subprocess
os.environ["ADDED"] = "x"
del os.environ["HOME"]
print(subprocess.run(["sh", "-c", "echo $ADDED ${HOME-none}"], capture_output=True))
