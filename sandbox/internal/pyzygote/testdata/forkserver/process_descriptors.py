import os
for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
    try:
        print(fd, os.readlink("/proc/self/fd/%d" % fd).partition(":")[0], os.get_inheritable(fd))
    except OSError as e:
        print(fd, e.strerror)
print(os.open("/dev/null", 0))
