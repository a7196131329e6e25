flags = {"user": 0x10000000, "mnt": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000, "time": 0x80}


def child(what, number, *args):
    sys.stdout.flush()
    result, e = call(number, *args)
    if result == 0:
        os._exit(0)
    if result > 0:
        os.waitpid(result, 0)
        print("FAIL", what, "made a process")
    else:
        print("PASS" if e in (errno.EPERM, errno.ENOSYS) else "FAIL", what, errno.errorcode.get(e, e))


for name, flag in flags.items():
    for high in (0, 1 << 32, 0xffffffff << 32):
        pid = os.fork()
        if pid == 0:
            r, e = call(272, flag | high)
            os._exit(0 if r == -1 and e in (1, 38) else 1)
        print("PASS" if os.waitpid(pid, 0)[1] == 0 else "FAIL", "unshare", name, hex(high))
        if flag != 0x80:  # in clone's flags this bit belongs to the signal
            child("clone %s %#x" % (name, high), 56, flag | high | 17, 0, 0, 0, 0)
child("clone all", 56, 0x7e020000 | 17, 0, 0, 0, 0)
args = (ctypes.c_uint64 * 11)()
for name, flag in list(flags.items()) + [("none", 0)]:
    args[0], args[4] = flag, 17
    child("clone3 " + name, 435, args, 88)
    child("clone3 short " + name, 435, args, 64)
print("FAIL a user namespace inside" if len(open("/proc/self/uid_map").readlines()) != 2 else "PASS still in its own")
try:
    limit = int(open("/proc/sys/user/max_user_namespaces").read())
    print("PASS" if limit == 0 else "FAIL", "max_user_namespaces", limit)
except OSError as e:
    print("INFO", e)
