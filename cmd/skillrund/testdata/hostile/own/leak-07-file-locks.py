import fcntl
for path in ("/usr/bin/env", "/usr/bin/python3", "/etc/passwd", "/skills/hostile/SKILL.md", "/skills/hostile/data/lock"):
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as e:
        print("PASS", path, e.strerror)
        continue
    for what, lock in (("flock", lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)), ("lease", lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK))):
        try:
            lock()
            print("PASS", what, "is free", path)
        except BlockingIOError:
            print("FAIL", what, "of another sandbox is seen", path)
        except OSError as e:
            print("PASS", what, path, e.strerror)
print("held", flush=True)
sys.stdin.readline()
