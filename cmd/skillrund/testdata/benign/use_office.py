# An office suite uses a socket in the temporary directory to find a running instance.
# Skills first test whether they can make such a socket. This program does both.
import array
import os
import socket
import subprocess
import sys

probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
probe.close()
path = os.path.join(os.environ["TMPDIR"], "OSL_PIPE_%d_SingleOfficeIPC_0123456789abcdef" % os.getuid())
first = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
try:
    first.connect(path)
    raise SystemExit("somebody answers")
except FileNotFoundError:
    pass
first.bind(path)
os.chmod(path, 0o600)
first.listen(5)
second = subprocess.Popen([sys.executable, "-c", "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.sendall(b'InternalIPC::Arguments\\0')\nprint(s.recv(100))", path], stdout=subprocess.PIPE)
c, _ = first.accept()
assert c.recv(100) == b"InternalIPC::Arguments\0"
c.sendall(b"InternalIPC::ProcessingDone\0")
assert b"ProcessingDone" in second.communicate()[0]
a, b = socket.socketpair()
r, w = os.pipe()
a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [w]))])
_, ancillary, _, _ = b.recvmsg(1, socket.CMSG_LEN(4))
os.write(array.array("i", ancillary[0][2])[0], b"through a passed descriptor")
assert os.read(r, 100) == b"through a passed descriptor"
a.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
profile = os.path.expanduser("~/.config/libreoffice/4/user")
os.makedirs(profile)
open(os.path.join(profile, "registrymodifications.xcu"), "w").write("<x/>")
d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
d.bind("\0office-abstract")
os.unlink(path)
print("ok")
