import fcntl, struct
paths = ["/", "/usr", "/usr/bin", "/usr/bin/env", "/usr/bin/python3", "/etc", "/etc/passwd", "/etc/ssl/certs", "/etc/services", "/opt", "/opt/skillrun/bin", "/run",
    "/skills", "/skills/hostile", "/skills/hostile/SKILL.md", "/skills/hostile/data/lock", "/workspace", "/workspace/SKILL.md", "/dev", "/dev/null", "/dev/shm", "/tmp", "/home",
    "/proc", "/proc/self/exe", "/proc/version", "/proc/sys/kernel", ctypes.__file__]
# Libraries that this process has mapped, if the kernel lets it open them.
paths += ["/proc/self/map_files/" + name for name in os.listdir("/proc/self/map_files")]
paths += ["/proc/self/ns/" + name for name in os.listdir("/proc/self/ns")]
held, inodes = [], set()
for path in paths:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as e:
        print("PASS", path, e.strerror)
        continue
    held.append(fd)
    inode = os.fstat(fd)[1:3]
    if inode in inodes:
        continue  # the same file by another name: this process has locked it
    inodes.add(inode)
    for what, lock in (
        ("flock", lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)),
        ("lock", lambda: fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)),
        ("lock of a descriptor", lambda: fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 8, 8, 0))),
    ):
        try:
            lock()
            print("PASS", what, "is free", path)
        except BlockingIOError:
            print("FAIL", what, "of another sandbox is seen", path)
        except OSError as e:
            print("PASS", what, path, e.strerror)
    for command in (5, 36):  # F_GETLK, F_OFD_GETLK: which lock would block a write lock
        try:
            kind, _, start, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(fd, command, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)))
        except OSError as e:
            print("PASS", path, e.strerror)
            continue
        # The two kinds of locks of this process block each other.
        own = kind == fcntl.F_UNLCK or command == 5 and start == 8 and pid == -1 or command == 36 and start == 0 and pid == os.getpid()
        print("PASS" if own else "FAIL a lock of another is seen", path, command, kind, start, pid)
print("held", flush=True)
sys.stdin.readline()
