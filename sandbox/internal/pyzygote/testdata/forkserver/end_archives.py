import bz2
import dbm.dumb
import gzip
import json
import lzma
import shelve
import sqlite3
import tarfile
import zipfile

info = zipfile.ZipInfo("a", (2000, 1, 1, 0, 0, 0))
z = zipfile.ZipFile("global.zip", "w")
z.writestr(info, "text")
json.z = zipfile.ZipFile("module.zip", "w")
json.z.writestr(info, "text")
g = gzip.GzipFile("global.gz", "w", mtime=0)
g.write(b"text")
json.g = gzip.GzipFile("module.gz", "w", mtime=0)
json.g.write(b"text")
b = bz2.open("global.bz2", "wt")
b.write("text")
json.x = lzma.open("module.xz", "wt")
json.x.write("text")
t = tarfile.open("global.tar", "w")
t.addfile(tarfile.TarInfo("a"))
s = shelve.Shelf(dbm.dumb.open("global.shelf"), writeback=True)
s["a"] = [1]
s["a"].append(2)
json.s = shelve.Shelf(dbm.dumb.open("module.shelf"), writeback=True)
json.s["a"] = [1]
json.s["a"].append(2)
d = sqlite3.connect("global.db")
d.execute("create table t(x)")
d.commit()
d.execute("insert into t values(1)")
json.d = sqlite3.connect("module.db")
json.d.execute("create table t(x)")
print("end")
