# A build with the tag skillrun_faults, and no other, inserts this text before the last lines
# of sitecustomize.py. It switches off layers of protection that a child installs. OFF names
# them. It replaces functions in modules of the fork server only, so the script can't see it.

import types

from forkserver import fork


def _orphan():
    """Makes each zygote end after it has reported a fork, before its child asks for its
    parent's end. The child then continues as an orphan."""
    import select

    enter, send = fork.enter_groups, zygote.Zygote.send
    entered = []  # the ends of pipes that the zygote reads from

    def orphan_fork():
        parent = fork.syscall("pidfd_open", os.getpid(), 0)
        here, there = os.pipe()
        pid = os.fork()
        if pid:
            entered.append(here)
            return pid

        def enter_groups(groups):
            enter(groups)
            os.write(there, b"x")
            select.select([parent], [], [])  # a pidfd is readable after the process's end

        fork.enter_groups = enter_groups
        return pid

    def send_and_end(self, **packet):
        send(self, **packet)
        if packet["op"] == "forked":
            os.read(entered[-1], 1)
            os._exit(0)

    zygote.os = _like(os, fork=orphan_fork)
    zygote.Zygote.send = send_and_end


def _like(module, **other):
    return types.SimpleNamespace(**{**vars(module), **other})


def _without(off):
    class Libc:
        def __getattr__(self, name):
            return getattr(libc, name)

    def nothing(*args, **kwargs):
        return 0

    libc, weak = fork.libc, Libc()
    known = {"user": 0x10000000, "mnt": 0x20000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000, "cgroup": 0x02000000, "time": 0x80}
    enter, limits, call, control = fork.enter_namespaces, fork.set_limits, fork.syscall, fork.prctl
    without = {flag for name, flag in known.items() if name in off}
    fork.enter_namespaces = lambda spaces, kinds: enter(*zip(*((s, k) for s, k in zip(spaces, kinds) if k not in without)))
    for name in off:
        if name == "pid":
            weak.setns = lambda fd, kind: 0 if kind == zygote.CLONE_NEWPID else libc.setns(fd, kind)
        elif name == "groups":
            fork.enter_groups = nothing
        elif name == "keyring":
            fork.join_keyring = nothing
        elif name == "filter":
            fork.Filter.load = nothing
        elif name == "no new privileges":
            fork.prctl = lambda option, *args: 0 if option == fork.PR_SET_NO_NEW_PRIVS else control(option, *args)
        elif name == "ids":
            fork.os = _like(fork.os, setresuid=nothing, setresgid=nothing)
        elif name == "bounding set":
            fork.drop_bounding_set = nothing
        elif name == "capabilities":
            weak.capset = nothing
        elif name == "core":
            fork.set_limits = lambda rlimits: limits([r for r in rlimits if r[0] != fork.resource.RLIMIT_CORE])
        elif name == "limits":
            fork.set_limits = nothing
        elif name == "umask":
            mask = os.umask
            fork.os = _like(fork.os, umask=lambda _: mask(0o022))
        elif name == "descriptors":
            fork.syscall = lambda name, *args: 0 if name == "close_range" else call(name, *args)
        elif name == "orphans":
            _orphan()
        elif name not in known:
            raise ValueError("no layer " + name)
    fork.libc = zygote.libc = weak


_without(OFF)
