import fcntl
SETOWN, SETOWN_EX, SETSIG, SETLEASE, GETLEASE, NOTIFY = 8, 15, 10, 1024, 1025, 1026
number = {"x86_64": 72, "aarch64": 25}[os.uname().machine]
files = ["/usr/bin/env", "/etc/passwd", "/proc/self/exe"]
files += [os.path.join(at, name) for at, _, names in os.walk("/skills") for name in names]
for path in files + ["/usr/bin", "/etc", "/skills"]:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as e:
        print("PASS", path, e.strerror)
        continue
    for high in (0, 1 << 32):
        for what, command, arg in (
            ("write lease", SETLEASE, fcntl.F_WRLCK), ("read lease", SETLEASE, fcntl.F_RDLCK), ("lease", GETLEASE, 0), ("dnotify", NOTIFY, 1),
            ("signal", SETSIG, 10), ("owner", SETOWN, os.getpid()), ("owner by address", SETOWN_EX, (ctypes.c_int * 2)(1, os.getpid())),
        ):
            refused("%s of %s" % (what, path), number, fd, command | high, arg)
