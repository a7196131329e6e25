for fd in sorted(int(n) for n in os.listdir("/proc/self/fd")):
    try:
        st = os.fstat(fd)
    except OSError:
        continue  # the descriptor of the listing itself
    target = os.readlink("/proc/self/fd/%d" % fd)
    good = fd <= 2 and (stat.S_ISFIFO(st.st_mode) or target == "/dev/null")
    print("PASS" if good else "FAIL", fd, target)
    if stat.S_ISREG(st.st_mode):
        fails("reopen %d for writing" % fd, lambda: os.open("/proc/self/fd/%d" % fd, os.O_RDWR | os.O_TRUNC))
# init would also have descriptors that its parent marked close-on-exec.
fails("list init's descriptors", lambda: os.listdir("/proc/1/fd"))
for fd in range(3, 1024):
    try:
        os.fstat(fd)
        print("FAIL open", fd)
    except OSError:
        pass
