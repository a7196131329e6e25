import ctypes
import ctypes.util
import datetime
import getpass
import grp
import locale
import os
import platform
import pwd
import random
import resource
import select
import signal
import socket
import ssl
import time
import urllib.parse
import uuid
import zoneinfo

assert getpass.getuser() == pwd.getpwuid(os.getuid()).pw_name == grp.getgrgid(os.getgid()).gr_name == "skill"
assert os.path.expanduser("~") == "/home/skill" and os.path.isdir("/home/skill")
assert locale.getpreferredencoding().upper() == "UTF-8" and "ü".encode() == b"\xc3\xbc"
assert datetime.datetime.now(zoneinfo.ZoneInfo("Europe/Berlin")).tzname() in ("CET", "CEST")
assert len({uuid.uuid4(), uuid.uuid1(), random.SystemRandom().random(), os.urandom(8)}) == 4
assert os.cpu_count() >= 1 and len(os.sched_getaffinity(0)) >= 1 and platform.machine()
libc = ctypes.CDLL(ctypes.util.find_library("c") or None)
assert libc.getpid() == os.getpid()
got = []
signal.signal(signal.SIGALRM, lambda *_: got.append(1))
# Again and again: an alarm just before pause does not end it.
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
while not got:
    signal.pause()
signal.setitimer(signal.ITIMER_REAL, 0)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
os.kill(os.getpid(), signal.SIGUSR2)
assert signal.sigtimedwait([signal.SIGUSR2], 20).si_signo == signal.SIGUSR2
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
e = select.epoll()
r, w = os.pipe()
e.register(r, select.EPOLLIN)
os.write(w, b"x")
assert e.poll(20) == [(r, select.EPOLLIN)]
assert len(ssl.create_default_context().get_ca_certs()) >= 0
assert socket.gethostbyname("localhost") == "127.0.0.1" and socket.gethostname() == "sandbox"
try:
    socket.create_connection(("example.com", 80), 5)
    raise SystemExit("there is a network")
except OSError as e:  # the error comes at once, as programs expect
    assert urllib.parse.urlsplit("http://example.com").hostname == "example.com"
assert time.monotonic() >= 0 and time.time() > 1.7e9
pid = os.fork()
if pid == 0:
    os.setsid()
    os.umask(0o22)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print("ok")
