import os, tempfile
open("made.txt", "w").write("x")
print(oct(os.stat("made.txt").st_mode))
os.makedirs("d/e")
os.rename("made.txt", "d/e/moved.txt")
print(open("d/e/moved.txt").read(), tempfile.gettempdir())
with tempfile.NamedTemporaryFile() as f:
    print(os.path.dirname(f.name))
for p in ("/usr/x", "/x", "/skills/x"):
    try:
        open(p, "w")
    except OSError as e:
        print(e.strerror, p)
import shutil
shutil.rmtree("d")
