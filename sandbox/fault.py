# A build with the tag skillrun_faults, and no other, inserts this text before the last lines
# of forkserver.py. It switches off layers of protection that a child installs. OFF names
# them. It replaces functions in forkserver.py's module only, so the script can't see it.


import types


def _orphan(g):
    """Makes each zygote end after it has reported a fork, before its child asks for its
    parent's end. The child then continues as an orphan."""
    fork, enter, send = os.fork, g["enter_groups"], Zygote.send
    entered = []  # the ends that the zygote reads from

    def orphan_fork():
        zygote = syscall("pidfd_open", os.getpid(), 0)
        here, there = os.pipe()
        pid = fork()
        if pid:
            entered.append(here)
            return pid

        def enter_groups(groups):
            enter(groups)
            os.write(there, b"x")
            select.select([zygote], [], [])  # a pidfd is readable after the process's end

        g["enter_groups"] = enter_groups
        return pid

    def send_and_end(self, **packet):
        send(self, **packet)
        if packet["op"] == "forked":
            os.read(entered[-1], 1)
            os._exit(0)

    g["os"] = types.SimpleNamespace(**{**vars(os), "fork": orphan_fork})
    Zygote.send = send_and_end


def _without(off):
    def like(module, **other):
        return types.SimpleNamespace(**{**vars(module), **other})

    class Libc:
        def __getattr__(self, name):
            return getattr(libc, name)

    def nothing(*args, **kwargs):
        return 0

    g, libc = globals(), _libc
    weak = Libc()
    known = {"user": 0x10000000, "mnt": 0x20000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000, "cgroup": 0x02000000, "time": 0x80}
    enter, limits, call, control = enter_namespaces, set_limits, syscall, prctl
    without = {flag for name, flag in known.items() if name in off}
    g["enter_namespaces"] = lambda spaces, kinds: enter(*zip(*((s, k) for s, k in zip(spaces, kinds) if k not in without)))
    for name in off:
        if name == "pid":
            weak.setns = lambda fd, kind: 0 if kind == CLONE_NEWPID else libc.setns(fd, kind)
        elif name == "groups":
            g["enter_groups"] = nothing
        elif name == "keyring":
            g["join_keyring"] = nothing
        elif name == "filter":
            Filter.load = nothing
        elif name == "no new privileges":
            g["prctl"] = lambda option, *args: 0 if option == PR_SET_NO_NEW_PRIVS else control(option, *args)
        elif name == "ids":
            g["os"] = like(os, setresuid=nothing, setresgid=nothing)
        elif name == "bounding set":
            g["drop_bounding_set"] = nothing
        elif name == "capabilities":
            weak.capset = nothing
        elif name == "core":
            g["set_limits"] = lambda rlimits: limits([r for r in rlimits if r[0] != resource.RLIMIT_CORE])
        elif name == "limits":
            g["set_limits"] = nothing
        elif name == "umask":
            mask = os.umask
            g["os"] = like(os, umask=lambda _: mask(0o022))
        elif name == "descriptors":
            g["syscall"] = lambda name, *args: 0 if name == "close_range" else call(name, *args)
        elif name == "orphans":
            _orphan(g)
        elif name not in known:
            raise ValueError("no layer " + name)
    g["_libc"] = weak


_without(OFF)
