for where in ("/workspace", "/tmp", "/dev/shm", os.path.expanduser("~")):
    total, paths, why = 0, [], None
    while total < 1 << 30 and why is None:
        paths.append("%s/fill%d" % (where, len(paths)))
        fd = os.open(paths[-1], os.O_CREAT | os.O_WRONLY)
        try:
            while total < 1 << 30:
                total += os.write(fd, b"z" * (1 << 20))
        except OSError as e:
            why = e
            if e.errno == errno.EFBIG:
                why = None  # one file is full, the mount is not yet
        os.close(fd)
    print("PASS" if why is not None and why.errno == errno.ENOSPC else "FAIL", where, total >> 20, "MiB", why)
    for path in paths:
        os.unlink(path)
