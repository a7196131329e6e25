"""Calls of the kernel and of the C library for which Python has no function."""

import ctypes
import os

CLONE_NEWPID = 0x20000000
# Calls without a function in every libc, by machine: (x86_64, aarch64).
_CALLS = {
    "keyctl": (250, 219),
    "rt_sigaction": (13, 134),
    "seccomp": (317, 277),
    "pidfd_open": (434, 434),
    "close_range": (436, 436),
    "openat2": (437, 437),
    "process_madvise": (440, 440),
}
_MACHINE = {"x86_64": 0, "aarch64": 1}.get(os.uname().machine)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.sbrk.restype = ctypes.c_void_p
libc.malloc.restype = ctypes.c_void_p
libc.capset, libc.clearenv, libc.madvise  # looked up here once, not in each child

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME = 1, 4, 15
PR_CAPBSET_READ, PR_CAPBSET_DROP = 23, 24
PR_SET_MM, PR_SET_MM_MAP = 35, 14
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4


def checked(result):
    """Raises the OSError of a libc function that returned -1."""
    if result == -1:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return result


def syscall(name, *args):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return checked(libc.syscall(ctypes.c_long(_CALLS[name][_MACHINE]), *words))


def prctl(option, *args):
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in args]
    words += [ctypes.c_ulong(0)] * (4 - len(words))
    return checked(libc.prctl(option, *words))
