"""inotify as the watchdog package uses it, by ctypes: in the workspace, HOME and TMPDIR."""
import ctypes
import os
import struct

IN_CREATE = 0x100
libc = ctypes.CDLL(None, use_errno=True)
for directory in (os.getcwd(), os.environ["HOME"], os.environ["TMPDIR"]):
    fd = libc.inotify_init1(0)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    watch = libc.inotify_add_watch(fd, directory.encode(), IN_CREATE)
    assert watch >= 0, os.strerror(ctypes.get_errno())
    open(os.path.join(directory, "watched.py.txt"), "w").close()
    event = os.read(fd, 4096)
    wd, mask, _, length = struct.unpack_from("iIII", event)
    name = event[16:16 + length].rstrip(b"\0")
    assert (wd, mask, name) == (watch, IN_CREATE, b"watched.py.txt"), event
    os.close(fd)
print("ok")
