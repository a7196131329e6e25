import sys, zipfile
with zipfile.ZipFile("/tmp/z.zip", "w") as z:
    z.writestr(zipfile.ZipInfo("inzip.py"), "where = __file__")
sys.path.insert(0, "/tmp/z.zip")
import inzip
print(inzip.where)
