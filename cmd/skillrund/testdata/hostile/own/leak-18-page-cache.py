import mmap
libc.mmap.restype = ctypes.c_void_p


def mapped(fd, do):
    """Calls do with the address of the first page of a file."""
    at = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_PRIVATE, fd, ctypes.c_long(0)))
    do(at)
    libc.munmap(at, ctypes.c_size_t(4096))


def page_out(at):
    ctypes.string_at(at, 1)
    libc.madvise(at, ctypes.c_size_t(4096), 21)  # MADV_PAGEOUT


def resident(fd):
    """Says whether the first page is in memory, by the best way that the sandbox leaves."""
    try:
        return os.preadv(fd, [bytearray(4096)], 0, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False
    except OSError:
        pass
    pages = (ctypes.c_ubyte * 1)()
    mapped(fd, lambda at: libc.mincore(at, ctypes.c_size_t(4096), pages))
    return bool(pages[0] & 1)


library = os.path.dirname(os.__file__)
largest = max((e for e in os.scandir(library) if e.name.endswith(".py")), key=lambda e: e.stat().st_size)
for path in (largest.path, "/skills/hostile/SKILL.md"):
    fd = os.open(path, os.O_RDONLY)
    os.read(fd, 4096)
    try:
        os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
        print("FAIL", path, "shows whether it was in memory")
    except BlockingIOError:
        print("FAIL", path, "shows that it was not in memory")
    except OSError as e:
        print("PASS", path, e.strerror)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    print("PASS" if resident(fd) else "FAIL", path, "after DONTNEED")
    os.read(fd, 4096)
    mapped(fd, page_out)
    print("PASS" if resident(fd) else "FAIL", path, "after PAGEOUT")
