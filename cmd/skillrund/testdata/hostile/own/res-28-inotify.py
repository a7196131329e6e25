held = []
try:
    while len(held) < 5000:
        fd, e = call(294, 0)
        if fd == -1:
            raise OSError(e, os.strerror(e))
        held.append(fd)
    print("FAIL instances", len(held))
except OSError as e:
    print("PASS" if len(held) <= 16 else "FAIL", "instances", len(held), e)
n = 0
for i in range(5000):
    path = "/tmp/w%d" % i
    open(path, "w").close()
    r, e = call(254, held[0], path.encode(), 0xfff)
    if r == -1:
        print("PASS watches", n, errno.errorcode.get(e))
        break
    n += 1
else:
    print("FAIL watches", n)
