"""A child that gets its command line and becomes the script.

Theory of operation

It takes a waiting child (fork.py) and one command line with its environment and
directory. By then the daemon has attached the mounts of the execution.

It promises that the script behaves as if its Python had just started. The child enters
the directory, replaces the environment, enters the command's virtual environment (venv),
adds the packages of the user, and gives the
interpreter the command line (Py_InitializeFromConfig). Then it returns, and Python's own
main continues: it computes sys.path[0], runs the script and exits with its status. No
frame of the fork server is on the script's stack, and it imitates no behavior of Python.

If a forked Python could differ from a started one, the child executes the command: it
calls execve with the same command line, in the same sandbox. That takes as long as the
start of a Python, but is always correct. The reasons are:

- the command is no Python, or another one, or has options (judge.may_fork), because they
  count at the start of a Python, which is over;
- its environment has settings that Python, the C library or a package reads at its start
  (judge.settings);
- a module near the script or among its packages has the name of a preloaded one, and would
  be imported instead (judge.hides), or the judgement would take too long;
- the script's text names the file of such a module, so it may write one (judge.names_a_module);
- the script's text depends on the order of imports (judge.depends_on_order);
- any step here raises an exception: a new Python reports the error itself.
"""

import ctypes
import os
import signal
import site
import struct
import sys

from . import exit, judge, lines, renew
from .barrier import Failed, run_stages
from .libc import PR_SET_DUMPABLE, PR_SET_MM, PR_SET_MM_MAP, PR_SET_NAME, checked, libc, prctl, syscall


def enter_directory(path):
    top = os.open("/workspace", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # struct open_how: RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
    how = struct.pack("=QQQ", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, 0x08 | 0x02)
    fd = syscall("openat2", top, os.fsencode(path) or b".", how, len(how))
    os.fchdir(fd)
    os.close(fd)
    os.close(top)


def replace_environment(env):
    checked(libc.clearenv())
    os.environ.clear()
    os.environ.update(env)


def set_time_zone(env):
    if "TZ" in env:
        import time

        time.tzset()


def add_sites(command, user):
    """Adds the packages of the virtual environment and the user's at Python's usual position:
    before the site's packages."""
    general = [p for p in sys.path if p in site.getsitepackages()]
    known = {p for p in sys.path}
    sys.path[:] = [p for p in sys.path if p not in general]
    if command.get("venv"):
        enter_venv(command, known)
    if user:
        site.addusersitepackages(known)
    if command.get("venv"):
        site.addsitepackages(known, [sys.prefix])  # once more, as the first of site.PREFIXES
    sys.path += general


def enter_venv(command, known):
    """Makes the command's virtual environment this Python's. site does it at the start of a
    Python by the path of the executable: sys.prefix, site.PREFIXES, the packages."""
    sys.executable = executable_of(command)
    sys.prefix = sys.exec_prefix = command["venv"]
    site.venv(known)
    if sys.version_info >= (3, 11):
        sys._base_executable = judge.where_is(sys.executable)
    else:
        sys._base_executable = sys.executable
    if "sysconfig" in sys.modules:
        import importlib

        importlib.reload(sys.modules["sysconfig"])  # it has the old prefix


def executable_of(command):
    """The path at which a Python of the virtual environment is found."""
    return os.path.join(command["venv"], "bin", os.path.basename(command["argv"][0]))


class Status(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("function", ctypes.c_char_p), ("error", ctypes.c_char_p), ("code", ctypes.c_int)]


class Config:
    """Functions of PyConfig. Its fields differ between versions; it takes about 500 bytes."""

    SIZE = 1 << 12

    init, clear = ctypes.pythonapi.PyConfig_InitPythonConfig, ctypes.pythonapi.PyConfig_Clear
    init.restype = clear.restype = None
    set_argv, read = ctypes.pythonapi.PyConfig_SetBytesArgv, ctypes.pythonapi.PyConfig_Read
    set_string, apply = ctypes.pythonapi.PyConfig_SetString, ctypes.pythonapi.Py_InitializeFromConfig
    set_argv.restype = read.restype = set_string.restype = apply.restype = Status


def encodings_of(config, heap):
    """Pointers to the strings of a PyConfig that have the C library's spelling, UTF-8.
    Python's start replaces them with the codec's name. A second configuration does
    not, so that sys.getfilesystemencoding() would show the difference."""
    text = struct.pack("=6I", *b"UTF-8\0")
    address, last = ctypes.addressof(config), libc.sbrk(0) - len(text)
    for offset, (value,) in enumerate(struct.iter_unpack("P", config)):
        if heap <= value <= last and ctypes.string_at(value, len(text)) == text:
            yield ctypes.c_void_p(address + offset * struct.calcsize("P"))


def configure(argv, heap):
    """Gives the interpreter another command line. sys.path is not part of it."""
    config = ctypes.create_string_buffer(Config.SIZE)
    words = (ctypes.c_char_p * len(argv))(*map(os.fsencode, argv))
    path, places = sys.path[:], (sys.executable, sys._base_executable, sys.prefix, sys.exec_prefix)

    def done(status):
        if status.type != 0:
            raise RuntimeError(status.error)

    Config.init(config)
    done(Config.set_argv(config, ctypes.c_ssize_t(len(argv)), words))
    done(Config.read(config))
    for field in list(encodings_of(config, heap)):
        done(Config.set_string(config, field, ctypes.c_wchar_p(sys.getfilesystemencoding())))
    done(Config.apply(config))
    Config.clear(config)
    sys.path[:] = path
    sys.executable, sys._base_executable, sys.prefix, sys.exec_prefix = places


def renew_main():
    """Makes a __main__ that gc.freeze has not seen, so that its names are collected at
    the end."""
    old = sys.modules["__main__"]
    new = type(sys)("__main__")
    new.__dict__.clear()
    new.__dict__.update(old.__dict__)
    sys.modules["__main__"] = new


def rename(argv, layout):
    """Changes the name and the command line that ps shows. If the kernel refuses, ps shows
    the zygote's command line (PR_SET_MM, prctl(2))."""
    name = os.fsencode(os.path.basename(argv[0]))[:15]
    libc.prctl(PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)
    parts = [b"".join(os.fsencode(a) + b"\0" for a in argv)]
    parts.append(b"".join(k + b"=" + v + b"\0" for k, v in os.environb.items()))
    memory = libc.malloc(ctypes.c_size_t(len(parts[0]) + len(parts[1]) + 1))  # never freed
    if not memory:
        return
    ctypes.memmove(memory, parts[0] + parts[1], len(parts[0]) + len(parts[1]))
    middle = memory + len(parts[0])
    # struct prctl_mm_map: only the arguments and the environment change.
    fields = layout[:5] + [libc.sbrk(0)] + layout[5:] + [memory, middle, middle, middle + len(parts[1])]
    packed = struct.pack("=11QQII", *fields, 0, 0, 0xFFFFFFFF)
    libc.prctl(PR_SET_MM, ctypes.c_ulong(PR_SET_MM_MAP), packed, ctypes.c_ulong(len(packed)), 0)


def memory_layout():
    """start_code, end_code, start_data, end_data, start_brk, start_stack."""
    with open("/proc/self/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return [int(fields[n - 3]) for n in (26, 27, 45, 46, 47, 28)]


def become(zygote, barrier, command):
    """Turns this child into the command. Returns if Python's main must continue;
    otherwise executes the command."""
    run_stages((("directory", enter_directory, (command["dir"],)), ("environment", replace_environment, (command["env"],))))
    become_python(zygote, barrier, command)


def become_python(zygote, barrier, command):
    """Returns if Python's main must continue. If the child can't judge the command, or
    can't become it, the child executes it: a new Python reports any error itself."""
    try:
        forked = judge.may_fork(zygote, command) and add_packages(zygote, barrier, command)
        if forked:
            reconfigure(zygote, command)
    except BaseException:
        forked = False
    if not forked:
        execute(barrier, command["argv"], command["env"])
    barrier.started()
    ctypes.set_errno(0)


def add_packages(zygote, barrier, command):
    """Adds the packages of the virtual environment and the user's. Returns false if they hide
    preloaded modules."""
    user, venv = judge.find_user_site(), command.get("venv")
    sites = {s for s in (venv and judge.find_venv_site(venv), user) if s}
    if any(judge.hides(s, zygote.preloaded) for s in sites):
        return False
    if any(judge.runs_code(s) for s in sites):
        barrier.started()  # the packages' code runs now, and must not reach the barrier
    if sites or venv:
        add_sites(command, user)
    added = (p for p in sys.path if type(p) is str and p not in zygote.path and p not in sites)
    return not any(judge.hides(p, zygote.preloaded) for p in added)


def reconfigure(zygote, command):
    set_time_zone(command["env"])
    renew.renew_clock()
    renew.renew_network()
    configure(command["argv"], zygote.layout[4])
    renew_main()
    exit.sentinel(zygote, lines.use() if command.get("lines") else [])
    rename(command["argv"], zygote.layout)
    prctl(PR_SET_DUMPABLE, 1)


def execute(barrier, argv, env):
    for s in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(s, signal.SIG_DFL)
    try:
        if barrier.fd is not None:
            barrier.say(op="started", by="exec")
        os.execvpe(argv[0], argv, env)
    except Exception as e:
        raise Failed("exec", e) from e
