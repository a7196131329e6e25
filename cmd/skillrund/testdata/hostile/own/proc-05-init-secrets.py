for name in ("environ", "maps", "smaps", "mem", "auxv", "stack", "syscall", "io", "pagemap", "personality", "wchan", "fdinfo", "fd", "cwd", "exe", "root",
             "map_files", "cmdline", "mountinfo", "ns/mnt", "task", "timers", "numa_maps", "patch_state", "stat", "status"):
    path = "/proc/1/" + name
    try:
        if name in ("cwd", "exe", "root", "ns/mnt"):
            got = os.readlink(path)
        elif name in ("fd", "fdinfo", "map_files", "task"):
            got = os.listdir(path)
        else:
            with open(path, "rb") as f:
                got = f.read(4096)
    except OSError as e:
        print("PASS", path, e.strerror)
        continue
    if got and name not in ("stat", "status", "cmdline", "task", "wchan", "mountinfo"):
        print("FAIL read", path, repr(got)[:100])
    else:
        print("INFO", path, repr(got)[:60])
text = b""
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid():
        for name in ("environ", "cmdline"):
            try:
                text += open("/proc/%s/%s" % (pid, name), "rb").read()
            except OSError:
                pass
for word in (b"DAEMON_SECRET", b"_LIBCONTAINER", b"skillrund", b"/var/tmp/skillrun"):
    print("FAIL sees" if word in text else "PASS no", word)
fails("ptrace-like read of init's memory", lambda: open("/proc/1/mem", "rb").read(1))
fails("signal init", lambda: os.kill(1, 0))
