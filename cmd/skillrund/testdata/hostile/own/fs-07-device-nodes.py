want = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
links = {"fd", "stdin", "stdout", "stderr", "core", "ptmx"}
for name in os.listdir("/dev"):
    path = "/dev/" + name
    st = os.lstat(path)
    if stat.S_ISLNK(st.st_mode) and name in links:
        print("PASS link", name, os.readlink(path))
    elif name == "shm" and stat.S_ISDIR(st.st_mode):
        print("PASS shm")
    elif stat.S_ISCHR(st.st_mode) and (os.major(st.st_rdev), os.minor(st.st_rdev)) == (1, want.get(name)):
        print("PASS device", name)
    else:
        print("FAIL", path, oct(st.st_mode))
for name in want:
    if not os.path.exists("/dev/" + name):
        print("FAIL no /dev/" + name)
for name in ("mem", "kmem", "port", "kmsg", "fuse", "kvm", "vhost-net", "vsock", "net/tun", "loop-control", "loop0", "vda", "sda",
             "nvme0n1", "dm-0", "mapper/control", "btrfs-control", "tty", "tty0", "console", "ptmx", "pts/0", "hwrng", "rtc0", "userfaultfd",
             "snapshot", "uinput", "input/event0", "dri/card0", "nvidia0", "binder", "ashmem", "cpu_dma_latency", "hpet"):
    fails("open /dev/" + name, lambda: os.open("/dev/" + name, os.O_RDWR))
fails("a node of its own", lambda: os.mknod("/dev/mine", 0o600 | stat.S_IFCHR, os.makedev(1, 1)))
fails("a file in /dev", lambda: os.open("/dev/file", os.O_CREAT | os.O_WRONLY))
with open("/proc/mounts") as f:
    kinds = [line.split()[2] for line in f if line.split()[1] == "/dev"]
print("PASS /dev is a tmpfs" if kinds == ["tmpfs"] else "FAIL /dev is %r" % kinds)
