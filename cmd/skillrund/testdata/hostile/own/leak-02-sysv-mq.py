for what, number, *args in (("shmget", 29, 0x5eed, 4096, 0o1666), ("semget", 64, 0x5eed, 1, 0o1666), ("msgget", 68, 0x5eed, 0o1666), ("mq_open", 240, b"hostile", 0o102, 0o666, 0)):
    r, e = call(number, *args)
    # Without IPC_EXCL the call would also find an object of an earlier run.
    print("FAIL made or found" if r != -1 else "PASS", what, errno.errorcode.get(e, e))
for name in ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"):
    try:
        rows = open(name).read().splitlines()[1:]
        print("FAIL sees" if rows else "PASS empty", name, rows[:2])
    except OSError as e:
        print("PASS", name, e.strerror)
mark = "/dev/shm/.hostile_marker"
print("FAIL marker of an earlier run" if os.path.exists(mark) else "PASS /dev/shm is fresh")
open(mark, "w").write("x")
s = socket.socket(socket.AF_UNIX)
try:
    s.bind("\0hostile_marker")
    print("PASS abstract name is free")
except OSError as e:
    print("FAIL abstract name", e)
s.listen()
if os.fork() == 0:
    time.sleep(600)  # if it survived the run, it would keep the name
