"""A child of the zygote, from the fork until it waits for its command line.

Theory of operation

It takes a fork request with its descriptors: the barrier, the three streams, the
namespaces of a sandbox and the sandbox's cgroup.procs files. The zygote has forked the
child into the PID namespace already.

It promises that the child waits as the first process of that sandbox, with the same
protection as a process that init forks (init_child.c): it is in the sandbox's cgroup and
namespaces. It has a new session, a new keyring, the sandbox's limits, the script's ids and
the script's filter. It has no capability and no descriptor of the zygote. The kernel ends
it when the zygote ends. No byte of a request has reached it. The daemon reads the posture
from the kernel before it sends the command line, so it need not believe this code.

Nothing falls back here: a stage that fails ends the child, and its last line names the
stage and the errno. The daemon then has init execute the program in another sandbox,
because a half-protected child must not run anything.
"""

import ctypes
import os
import resource
import signal
import struct

from . import renew
from .barrier import run_stages
from .libc import CLONE_NEWPID, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, PR_CAPBSET_DROP, PR_CAPBSET_READ, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG
from .libc import checked, libc, prctl, syscall

# The namespaces that a child enters, in this order: PID, user, mount, network, IPC, UTS and cgroup.
NAMESPACES = [CLONE_NEWPID, 0x10000000, 0x20000, 0x40000000, 0x08000000, 0x04000000, 0x02000000]
CLONE_NEWTIME = 0x80  # the last one, where the kernel has time namespaces
SCRIPT_ID = 1000  # uid and gid of the script in its sandbox
MAX_FILTER = 4096  # instructions, BPF_MAXINSNS of the kernel


def enter_groups(groups):
    for fd in groups:
        os.write(fd, b"0")


def enter_namespaces(spaces, kinds):
    for fd, kind in zip(spaces, kinds):
        checked(libc.setns(fd, kind))


def arrange_descriptors(barrier, stdio):
    for number, fd in enumerate(stdio):
        os.dup2(fd, number, inheritable=True)
    os.set_inheritable(barrier, False)
    if barrier > 3:
        syscall("close_range", 3, barrier - 1, 0)
    syscall("close_range", barrier + 1, 0xFFFFFFFF, 0)


def set_limits(rlimits):
    def value(v):
        return resource.RLIM_INFINITY if v < 0 or v >= 1 << 63 else v

    for number, soft, hard in rlimits:
        resource.setrlimit(number, (value(soft), value(hard)))


# The capabilities that the kernel knows.
_CAPABILITIES = [c for c in map(ctypes.c_ulong, range(64)) if libc.prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0]


def drop_bounding_set():
    for cap in _CAPABILITIES:
        checked(libc.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))


def become_script():
    """Drops ids and capabilities, as init_child.c does. Then it sets the flags that the
    kernel resets at a change of ids (prctl(2))."""
    os.setgroups([])
    os.setresgid(SCRIPT_ID, SCRIPT_ID, SCRIPT_ID)
    os.setresuid(SCRIPT_ID, SCRIPT_ID, SCRIPT_ID)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    checked(libc.capset(header, bytes(24)))
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.umask(0o077)


def join_keyring():
    try:
        syscall("keyctl", 1, None)  # KEYCTL_JOIN_SESSION_KEYRING: a new keyring without a name
    except OSError as e:
        if e.errno != 38:  # ENOSYS: a kernel without keyrings
            raise


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    @classmethod
    def read(cls, fd, size):
        code = os.pread(fd, size, 0)
        if len(code) != size or size % 8 or not 0 < size <= 8 * MAX_FILTER:
            raise ValueError("filter of %d bytes" % size)
        return cls(size // 8, code)

    def load(self):
        syscall("seccomp", 1, 0, ctypes.byref(self))  # SECCOMP_SET_MODE_FILTER


def prepare_child(zygote, request, spaces, barrier, stdio, groups):
    stages = (
        ("cgroup", enter_groups, (groups,)),
        ("memory", zygote.prefault.touch, ()),  # after cgroup: the copies are charged to the sandbox
        ("renew", renew.renew, (zygote.generators,)),  # may open /dev/urandom, so before descriptors
        ("namespaces", enter_namespaces, (spaces[1:], request["namespaces"][1:])),
        ("session", os.setsid, ()),
        ("descriptors", arrange_descriptors, (barrier, stdio)),
        ("streams", renew.renew_streams, ()),
        ("rlimits", set_limits, (request["rlimits"],)),
        ("capabilities", drop_bounding_set, ()),
        ("ids", become_script, ()),
        ("keyring", join_keyring, ()),  # after ids: the quota of keys is the script's, not the zygote's
        ("filter", zygote.filter.load, ()),
    )
    run_stages(stages)
