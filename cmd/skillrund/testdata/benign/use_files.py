import fcntl
import gzip
import hashlib
import json
import mmap
import os
import pathlib
import shutil
import tempfile
import zipfile

with tempfile.TemporaryDirectory() as top:
    p = pathlib.Path(top, "dir", "ümlaut 文.txt")
    p.parent.mkdir()
    p.write_text("text")
    shutil.copytree(p.parent, pathlib.Path(top, "copy"))
    shutil.copy2(p, pathlib.Path(top, "copy2"))
    os.link(p, os.path.join(top, "hard"))
    os.symlink(p, os.path.join(top, "soft"))
    assert os.stat(os.path.join(top, "soft")).st_nlink == 2
    os.rename(os.path.join(top, "copy"), os.path.join(top, "moved"))
    assert sorted(os.listdir(top)) == ["copy2", "dir", "hard", "moved", "soft"]
    os.chmod(p, 0o600)
    os.utime(p, (1, 1))
    assert p.stat().st_mtime == 1
with tempfile.TemporaryFile() as f:
    f.truncate(4096)
    with mmap.mmap(f.fileno(), 4096) as m:
        m[:3] = b"abc"
        m.flush()
    f.seek(0)
    assert f.read(3) == b"abc"
    fcntl.flock(f, fcntl.LOCK_EX)
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.fsync(f.fileno())
    os.posix_fallocate(f.fileno(), 0, 8192)
with zipfile.ZipFile("a.zip", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("x/y.txt", "zipped")
assert zipfile.ZipFile("a.zip").read("x/y.txt") == b"zipped"
assert gzip.decompress(gzip.compress(b"x" * 1000)) == b"x" * 1000
pathlib.Path("b.txt.new").write_text(json.dumps({"ü": 1}, ensure_ascii=False))
os.replace("b.txt.new", "b.txt")
assert hashlib.sha256(open("/usr/bin/env", "rb").read()).hexdigest()
assert os.access("/workspace", os.W_OK) and not os.access("/usr", os.W_OK)
shutil.make_archive("/tmp/all", "gztar", "/workspace")
print("ok")
