held, total = [], 0
try:
    while total < 1 << 30:
        fd = os.memfd_create("x")
        held.append(fd)
        for _ in range(8):
            total += os.write(fd, b"m" * (1 << 20))
    print("FAIL", total >> 20, "MiB of memfds")
except OSError as e:
    print("PASS stopped at", total >> 20, "MiB", e)
