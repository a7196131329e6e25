import os
import subprocess
import sys

# Without pip, which would need a network.
subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", "/tmp/env"], check=True)
out = subprocess.run(["/tmp/env/bin/python", "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True).stdout
assert out == "/tmp/env\n", out
os.makedirs("/tmp/package/mine")
open("/tmp/package/mine/__init__.py", "w").write("def hi(): return 'hi'\n")
sys.path.insert(0, "/tmp/package")
import mine

assert mine.hi() == "hi"
print("ok")
