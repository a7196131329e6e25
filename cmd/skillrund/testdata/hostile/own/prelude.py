import ctypes, errno, os, socket, stat, sys, time
libc = ctypes.CDLL(None, use_errno=True)


def call(number, *args):
    """Makes a system call past libc; returns its result and errno."""
    ctypes.set_errno(0)
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    return result, ctypes.get_errno() if result == -1 else 0


def refused(what, number, *args, errors=(errno.EPERM, errno.ENOSYS)):
    """Says PASS if the call never came beyond the filter."""
    result, e = call(number, *args)
    name = errno.errorcode.get(e, e)
    if result == -1 and e in errors:
        print("PASS", what, name)
    else:
        print("FAIL", what, "returned", result, name)


def fails(what, action):
    """Says PASS if the action raises OSError."""
    try:
        got = action()
    except OSError as e:
        print("PASS", what, e.strerror or e)
    else:
        print("FAIL", what, repr(got)[:80])


