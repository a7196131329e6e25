"""The fork server. It makes a CPython (3.9 to 3.14) into a Python zygote: the
zygote imports the modules that scripts need, and forks children that run the
scripts.

Theory of operation

The daemon puts this file, named sitecustomize.py, into a separate directory.
It starts the interpreter by the name that scripts use, with no arguments and
with PYTHONPATH set to that directory. The rest of the environment is the same
as for scripts. Python imports sitecustomize at the end of its start, before it
determines the program to run. The zygote never leaves that import: it imports
modules and serves fork requests on descriptor 3.

A child moves into a prepared sandbox, gives up everything that it inherited,
and waits for a command line. It then configures the interpreter again with that
command line (Py_InitializeFromConfig) and returns from this import. Python's
normal main continues, from the computation of sys.path[0] to the exit status.
No frame of this file is on the script's stack, and this file imitates no
behavior of Python.

Some command lines need more: other options, another interpreter, or modules
near the script that hide preloaded ones. For these the child calls execve
with the same command line, in the same sandbox. That is slower, but always
correct.

Before it waits, a child copies the memory pages that the start and the end of a
script write. A rehearsal finds these pages (see Prefault). So a script
copies few pages of the zygote while it runs.

A script shares with its siblings: preloaded modules in sys.modules, the hash
seed, the layout of the address space, and objects that gc.freeze keeps out of
collections. Function renew lists the state that each child makes fresh.

The zygote has one thread, runs only code of the interpreter's installation,
and must survive every request. It ends when descriptor 3 closes.
"""

import sys

_bare = frozenset(sys.modules)  # the modules of a Python that just started

import _thread
import _weakref
import ctypes
import gc
import io
import json
import os
import re
import resource
import select
import signal
import site
import socket
import stat
import struct

CONTROL = 3
SCRIPT_ID = 1000  # uid and gid of the script in its sandbox
MAX_PACKET = 1 << 16  # of the daemon's requests
MAX_COMMAND = 16 << 20  # of a command line with its environment
MAX_GROUPS = 8
MAX_SPACES = 8  # namespaces of a sandbox
MAX_FILTER = 4096  # instructions, BPF_MAXINSNS of the kernel
MAX_LISTED = 1 << 16  # names of one directory that a child reads
MAX_WALKED = 4096  # names beneath the workspace that a child reads
MAX_DEPTH = 32  # depth of directories that a child enters
MAX_ZIP_END = 22 + 0xFFFF  # the last record of a zip file begins in its last so many bytes

# The modules that a zygote may import. An untrusted script selects some of these, and has
# no other influence on the zygote. Package sandbox reads this list.
MODULES = """
    argparse asyncio base64 bs4 collections contextlib copy csv dataclasses datetime decimal docx enum fractions
    functools glob hashlib html io itertools jinja2 json logging lxml math matplotlib networkx numpy openpyxl operator
    os pandas pathlib PIL platform pptx pydantic pypdf random re reportlab requests scipy shlex shutil signal sklearn
    sqlite3 statistics string struct subprocess sympy tempfile textwrap time traceback types typing unicodedata
    unittest urllib uuid xml yaml zipfile zlib
""".split()

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
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}
_MACHINE = {"x86_64": 0, "aarch64": 1}.get(os.uname().machine)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.sbrk.restype = ctypes.c_void_p
_libc.malloc.restype = ctypes.c_void_p
_libc.capset, _libc.clearenv, _libc.madvise  # looked up here once, not in each child

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
    return checked(_libc.syscall(ctypes.c_long(_CALLS[name][_MACHINE]), *words))


def prctl(option, *args):
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in args]
    words += [ctypes.c_ulong(0)] * (4 - len(words))
    return checked(_libc.prctl(option, *words))


# ---- a child, from fork to waiting ----


class Failed(Exception):
    """The stage of a child that failed, and the errno."""

    def __init__(self, stage, error):
        self.stage, self.errno = stage, getattr(error, "errno", None) or 0


class Barrier:
    """A child's stream to the daemon. It closes before code of the request runs."""

    def __init__(self, fd):
        self.fd = fd

    def say(self, **packet):
        """Sends one line."""
        os.write(self.fd, json.dumps(packet).encode() + b"\n")

    def started(self):
        if self.fd is not None:
            self.say(op="started")
            os.close(self.fd)
            self.fd = None

    def failed(self, error):
        """Reports the error to the daemon; on stderr if the program has started."""
        stage, number = getattr(error, "stage", type(error).__name__), getattr(error, "errno", 0) or 0
        if self.fd is not None:
            self.say(op="failed", stage=stage, errno=number)
        else:
            os.write(2, ("skillrun: %s: %s\n" % (stage, os.strerror(number) if number else error)).encode())


def enter_groups(groups):
    for fd in groups:
        os.write(fd, b"0")


def enter_namespaces(spaces, kinds):
    for fd, kind in zip(spaces, kinds):
        checked(_libc.setns(fd, kind))


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
_CAPABILITIES = [c for c in map(ctypes.c_ulong, range(64)) if _libc.prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0]


def drop_bounding_set():
    for cap in _CAPABILITIES:
        checked(_libc.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))


def become_script():
    """Drops ids and capabilities, as init_child.c does. Then it sets the flags that the
    kernel resets at a change of ids (prctl(2))."""
    os.setgroups([])
    os.setresgid(SCRIPT_ID, SCRIPT_ID, SCRIPT_ID)
    os.setresuid(SCRIPT_ID, SCRIPT_ID, SCRIPT_ID)
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    checked(_libc.capset(header, bytes(24)))
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
    def read(cls, fd, offset, size):
        code = os.pread(fd, size, offset)
        if len(code) != size or size % 8 or not 0 < size <= 8 * MAX_FILTER:
            raise ValueError("filter of %d bytes" % size)
        return cls(size // 8, code)

    def load(self):
        syscall("seccomp", 1, 0, ctypes.byref(self))  # SECCOMP_SET_MODE_FILTER


def restrict_writing():
    """Restricts writing to the same directories as init_child.c. It must come after
    the mounts: a rule for a directory does not hold for a file system
    mounted on the directory (security/landlock/fs.c)."""
    try:
        if syscall("landlock_create_ruleset", None, 0, 1) < 2:
            return
    except OSError:
        return  # no Landlock; the daemon has checked whether that is tolerated
    rights = 1 << 1 | 1 << 13  # WRITE_FILE, REFER
    attr = struct.pack("=Q", rights)
    rules = syscall("landlock_create_ruleset", attr, len(attr), 0)
    for place in ("/workspace", "/tmp", "/home/skill", "/dev"):
        fd = os.open(place, os.O_PATH | os.O_CLOEXEC)
        syscall("landlock_add_rule", rules, 1, struct.pack("=Qi", rights, fd), 0)
        os.close(fd)
    syscall("landlock_restrict_self", rules, 0)
    os.close(rules)


def watch_generators(found):
    """Appends to found each random number generator that an import makes without a seed.
    Returns a function that ends this. numpy's generator is not found."""
    import random

    init = random.Random.__init__

    def noted(self, x=None):
        init(self, x)
        if x is None and not isinstance(self, random.SystemRandom):
            found.append(self)

    def stop():
        random.Random.__init__ = init

    random.Random.__init__ = noted
    return stop


def renew(generators=()):
    """Renews the state of imported modules that must differ between children. The random
    module reseeds its generator after a fork. os, time and secrets keep no state."""
    loaded = sys.modules.get
    for generator in generators:
        generator.seed()
    dummy = getattr(loaded("sympy"), "Dummy", None)
    if hasattr(dummy, "_base_dummy_index"):  # numbers of a script's symbols; they must differ between processes
        dummy._base_dummy_index = 10**6 + int.from_bytes(os.urandom(4), "little") % (8 * 10**6)
    if loaded("_ssl"):
        # libcrypto reseeds when getpid() has changed. In another PID namespace
        # the number may be the same.
        loaded("_ssl").RAND_add(os.urandom(64), 64.0)
    if loaded("numpy.random.mtrand"):
        loaded("numpy.random.mtrand")._rand.seed()
    if loaded("multiprocessing.process"):
        process = loaded("multiprocessing.process")
        process.current_process()._config["authkey"] = process.AuthenticationString(os.urandom(32))
    if loaded("tempfile"):
        loaded("tempfile")._name_sequence = loaded("tempfile").tempdir = None
    if loaded("threading"):
        loaded("threading").main_thread()._set_native_id()
    if loaded("uuid"):
        loaded("uuid")._node = loaded("uuid")._last_timestamp = None


def renew_clock():
    """Resets the start time of logging (relativeCreated), which is the time of its import."""
    logging = sys.modules.get("logging")
    if logging:
        import time

        logging._startTime = time.time() if type(logging._startTime) is float else time.time_ns()


def renew_streams():
    """Makes the standard streams from the descriptors, as Python's start does. It uses the
    zygote's settings: a child with other settings executes a Python instead."""
    flag = os.environ.get("PYTHONUNBUFFERED", "")
    unbuffered = flag != "" and (not flag.isdigit() or int(flag) > 0)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        buffer = io.open(number, "wb" if number else "rb", buffering=0 if unbuffered and number else -1, closefd=False)
        raw = buffer if unbuffered and number else buffer.raw
        raw.name = "<%s>" % name
        line_buffering = not unbuffered and (number == 2 or raw.isatty())
        stream = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", line_buffering, unbuffered)
        stream.mode = "w" if number else "r"
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)


def prepare_child(zygote, request, spaces, barrier, stdio, groups):
    stages = (
        ("cgroup", enter_groups, (groups,)),
        ("memory", zygote.prefault.touch, ()),  # after cgroup: the copies are charged to the sandbox
        ("renew", renew, (zygote.generators,)),  # may open /dev/urandom, so before descriptors
        ("namespaces", enter_namespaces, (spaces[1:], request["namespaces"][1:])),
        ("session", os.setsid, ()),
        ("keyring", join_keyring, ()),
        ("descriptors", arrange_descriptors, (barrier, stdio)),
        ("streams", renew_streams, ()),
        ("rlimits", set_limits, (request["rlimits"],)),
        ("capabilities", drop_bounding_set, ()),
        ("ids", become_script, ()),
        ("filter", zygote.filter.load, ()),
    )
    run_stages(stages)


def run_stages(stages):
    for name, function, args in stages:
        try:
            function(*args)
        except Exception as e:
            raise Failed(name, e) from e


# ---- memory that children write ----
#
# A child shares the zygote's pages until it writes to them. Each first write to a page is
# a page fault, in which the kernel copies the page. During the start and the end of a
# script most writes come from the interpreter, mainly reference counts. They hit nearly the
# same pages in each child. The child that rehearses the fast exit stops at its end, so that
# the zygote can see which pages it has written. Later children let the kernel copy these
# pages at once, before a request needs the child. This only affects speed: no page's
# content changes, and a page too few or too many costs a little time.

MADV_POPULATE_WRITE = 23  # Linux 5.14
MAX_PREFAULTED = 4 << 20  # bytes that a child copies
MAX_RANGES = 1024  # IOV_MAX
PAGE = os.sysconf("SC_PAGE_SIZE")


class Range(ctypes.Structure):
    """A struct iovec."""

    _fields_ = [("start", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def writable():
    """The private writable memory of this process, as pairs (start, end)."""
    with open("/proc/self/maps") as f:
        for line in f:
            where, rights = line.split(None, 2)[:2]
            if rights[:2] == "rw" and rights[3] == "p":
                start, _, end = where.partition("-")
                yield int(start, 16), int(end, 16)


def written(pid):
    """The addresses of pages in writable() that only the child pid maps. The child has
    written to these (/proc/pid/pagemap, bit 56, proc(5))."""
    with open("/proc/%d/pagemap" % pid, "rb", buffering=0) as f:
        for start, end in writable():
            f.seek(start // PAGE * 8)
            words = struct.iter_unpack("Q", f.read((end - start) // PAGE * 8))
            for address, (word,) in zip(range(start, end, PAGE), words):
                present, of_file, alone = word >> 63, word >> 61 & 1, word >> 56 & 1
                if present and alone and not of_file:
                    yield address


class Prefault:
    """The pages that children copy before they wait."""

    def __init__(self, addresses=()):
        found, room = [], MAX_PREFAULTED // PAGE
        for address in addresses:
            if room and found and sum(found[-1]) == address:
                found[-1][1] += PAGE
            elif room and len(found) < MAX_RANGES:
                found.append([address, PAGE])
            else:
                break
            room -= 1
        self.ranges = (Range * len(found))(*map(tuple, found))

    def touch(self):
        if not self.ranges or self.touch_at_once():
            return
        for r in self.ranges:
            if _libc.madvise(ctypes.c_void_p(r.start), ctypes.c_size_t(r.size), MADV_POPULATE_WRITE) == -1:
                return  # not supported by the kernel

    def touch_at_once(self):
        """Returns false if the kernel can't do it. For the caller's memory that is before Linux 6.13."""
        try:
            own = syscall("pidfd_open", os.getpid(), 0)
        except OSError:
            return False
        try:
            return syscall("process_madvise", own, ctypes.byref(self.ranges), len(self.ranges), MADV_POPULATE_WRITE, 0) > 0
        except OSError:
            return False
        finally:
            os.close(own)


# ---- a child, from waiting to the script ----


def read_full(fd, length):
    data = bytearray()
    while len(data) < length:
        more = os.read(fd, min(length - len(data), 1 << 20))
        if not more:
            os._exit(0)  # the daemon has discarded this child
        data += more
    return bytes(data)


def read_command(barrier):
    (length,) = struct.unpack("<I", read_full(barrier, 4))
    if length > MAX_COMMAND:
        raise ValueError("command of %d bytes" % length)
    return json.loads(read_full(barrier, length))


def enter_directory(path):
    top = os.open("/workspace", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # struct open_how: RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
    how = struct.pack("=QQQ", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, 0x08 | 0x02)
    fd = syscall("openat2", top, os.fsencode(path) or b".", how, len(how))
    os.fchdir(fd)
    os.close(fd)
    os.close(top)


def replace_environment(env):
    checked(_libc.clearenv())
    os.environ.clear()
    os.environ.update(env)


# ---- the fork server's judgement: fork or execute ----
#
# These functions look at the files and settings of a request. The program has not started
# yet, so no deadline of the program holds. Therefore the functions read a bounded number
# of names, and never open a file that can make them wait. Any exception means that they
# can't judge: become_python then executes the command.


def settings(env):
    """The variables of an environment that are read before the fork: by Python and the C
    library at their start, and by packages at their import."""
    read = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "XDG_CONFIG_HOME", "GCONV_PATH", "LOCPATH", "TZDIR")
    own = ("PYTHONPATH", "PYTHONUSERBASE")
    families = ("PYTHON", "BLIS_", "GLIBC_", "GOTO_", "JOBLIB_", "KMP_", "LD_", "LOKY_", "MALLOC_", "MATPLOTLIB", "MKL_", "MPL", "NETWORKX_")
    families += ("NPY_", "NUMEXPR_", "NUMPY_", "OMP_", "OPENBLAS_", "OPENPYXL_", "PANDAS_", "PILLOW_", "PYDANTIC_", "SCIPY_", "SKLEARN_")
    families += ("SYMPY_", "VECLIB_")
    return {k: v for k, v in env.items() if k in read or k.startswith(families) and k not in own}


def names_a_file(zone):
    """Whether a value of TZ may name a file outside of the system's zone directory. The
    C library opens the file (tzset(3)), and a pipe would make it wait."""
    return zone.startswith((":", "/")) or ".." in zone


def set_time_zone(env):
    if "TZ" in env:
        import time

        time.tzset()


def names(directory):
    with os.scandir(directory or ".") as entries:
        for n, entry in enumerate(entries):
            if n >= MAX_LISTED:
                raise OverflowError("more names than a child looks at")
            yield entry.name


def hides(directory, preloaded):
    """Whether a module in directory comes before a preloaded one."""
    try:
        for name in names(directory):
            stem, dot, suffix = name.partition(".")
            if stem in preloaded and (not dot or suffix in ("py", "pyc") or suffix.endswith("so")):
                return True
    except FileNotFoundError:
        pass  # Python will find nothing there, either
    return False


def hides_beneath(top, preloaded):
    """Whether a directory beneath top has a module with the name of a preloaded one. Any of
    these directories may come first on sys.path. Also true if there are too many files."""
    left, found = MAX_WALKED, [(top, 0)]
    while found:
        directory, depth = found.pop()
        with os.scandir(directory) as entries:
            entries = [entry for entry, _ in zip(entries, range(left + 1))]
        left -= len(entries)
        if left < 0 or depth > MAX_DEPTH:
            return True
        if directory == os.path.join(top, "venv") and any(e.name == "pyvenv.cfg" for e in entries):
            continue  # the skill's virtual environment: see add_user_site
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                if is_module(entry.name, directory, preloaded) or entry.is_symlink() and hides_by_link(entry, top, preloaded):
                    return True
            elif entry.name not in ("__pycache__", ".git", "node_modules"):
                found.append((entry.path, depth + 1))
    return False


def is_module(name, directory, preloaded):
    """Whether a file may be a module with the name of a preloaded one."""
    stem, _, suffix = name.partition(".")
    if suffix not in ("py", "pyc") and not suffix.endswith("so"):
        return False
    return stem in preloaded or stem == "__init__" and os.path.basename(directory) in preloaded


def hides_by_link(entry, top, preloaded):
    """Whether a link leads to a package that hides a preloaded module, or to a directory
    outside of top."""
    return entry.is_dir() and (entry.name in preloaded or not (where_is(entry.path) + "/").startswith(top + "/"))


def where_is(path):
    """The real path of a file. The kernel finds it, because the kernel follows at most 40
    links (path_resolution(7)); os.path.realpath follows any number."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.readlink("/proc/self/fd/%d" % fd)
    finally:
        os.close(fd)


def first_on_path(argv):
    """The sys.path[0] that Python will compute. None if the script may be a zip file, or is
    no regular file."""
    if argv[1] == "-c":
        return ""
    mode = os.stat(argv[1]).st_mode
    if stat.S_ISDIR(mode):
        return argv[1]
    if not stat.S_ISREG(mode) or may_be_zip(argv[1]):
        return None
    return os.path.dirname(where_is(argv[1]))


def may_be_zip(path):
    """Whether a file ends like a zip file. Only the end is read, because the rest may be
    long. An executed Python reads it within the program's deadline."""
    with open(path, "rb", buffering=0) as f:
        f.seek(max(0, f.seek(0, os.SEEK_END) - MAX_ZIP_END))
        return b"PK\5\6" in f.read(MAX_ZIP_END)


def find_user_site():
    """The directory of the user's packages. None if Python would not add one."""
    site.USER_BASE = site.USER_SITE = None
    if not site.ENABLE_USER_SITE:
        return None
    path = site.getusersitepackages()
    return path if os.path.isdir(path) and path not in sys.path else None


def runs_code(path):
    """Whether adding a directory of packages may run code from it (.pth files)."""
    return any(name.endswith(".pth") for name in names(path))


def add_user_site():
    """Adds the user's packages at Python's usual position: before the site's packages."""
    general = [p for p in sys.path if p in site.getsitepackages()]
    known = {p for p in sys.path}
    sys.path[:] = [p for p in sys.path if p not in general]
    site.addusersitepackages(known)
    sys.path += general


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
    address, last = ctypes.addressof(config), _libc.sbrk(0) - len(text)
    for offset, (value,) in enumerate(struct.iter_unpack("P", config)):
        if heap <= value <= last and ctypes.string_at(value, len(text)) == text:
            yield ctypes.c_void_p(address + offset * struct.calcsize("P"))


def configure(argv, heap):
    """Gives the interpreter another command line. sys.path is not part of it."""
    config = ctypes.create_string_buffer(Config.SIZE)
    words = (ctypes.c_char_p * len(argv))(*map(os.fsencode, argv))
    path = sys.path[:]

    def done(status):
        if status.type != 0:
            raise RuntimeError(status.error)

    Config.init(config)
    done(Config.set_argv(config, ctypes.c_ssize_t(len(argv)), words))
    done(Config.read(config))
    for slot in list(encodings_of(config, heap)):
        done(Config.set_string(config, slot, ctypes.c_wchar_p(sys.getfilesystemencoding())))
    done(Config.apply(config))
    Config.clear(config)
    sys.path[:] = path


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
    _libc.prctl(PR_SET_NAME, ctypes.c_char_p(name), 0, 0, 0)
    parts = [b"".join(os.fsencode(a) + b"\0" for a in argv)]
    parts.append(b"".join(k + b"=" + v + b"\0" for k, v in os.environb.items()))
    memory = _libc.malloc(ctypes.c_size_t(len(parts[0]) + len(parts[1]) + 1))  # never freed
    if not memory:
        return
    ctypes.memmove(memory, parts[0] + parts[1], len(parts[0]) + len(parts[1]))
    middle = memory + len(parts[0])
    # struct prctl_mm_map: only the arguments and the environment change.
    fields = layout[:5] + [_libc.sbrk(0)] + layout[5:] + [memory, middle, middle, middle + len(parts[1])]
    packed = struct.pack("=11QQII", *fields, 0, 0, 0xFFFFFFFF)
    _libc.prctl(PR_SET_MM, ctypes.c_ulong(PR_SET_MM_MAP), packed, ctypes.c_ulong(len(packed)), 0)


def memory_layout():
    """start_code, end_code, start_data, end_data, start_brk, start_stack."""
    with open("/proc/self/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return [int(fields[n - 3]) for n in (26, 27, 45, 46, 47, 28)]


def become(zygote, barrier, command):
    """Turns this child into the command. Returns if Python's main must continue;
    otherwise executes the command."""
    run_stages((("directory", enter_directory, (command["dir"],)), ("environment", replace_environment, (command["env"],))))
    if zygote.last_filter:
        run_stages((("landlock", restrict_writing, ()), ("filter", zygote.last_filter.load, ())))
    become_python(zygote, barrier, command)


def become_python(zygote, barrier, command):
    """Returns if Python's main must continue. If the child can't judge the command, or
    can't become it, the child executes it: a new Python reports any error itself."""
    try:
        forked = may_fork(zygote, command) and add_packages(zygote, barrier)
        if forked:
            reconfigure(zygote, command)
    except BaseException:
        forked = False
    if not forked:
        execute(barrier, command["argv"], command["env"])
    barrier.started()
    ctypes.set_errno(0)


def may_fork(zygote, command):
    """Whether this child can become the command, judged by files and settings."""
    argv, env, path, preloaded = command["argv"], command["env"], command.get("path") or [], zygote.preloaded
    if command.get("exec") or len(argv) < 2 or argv[0] != zygote.name:
        return False
    if argv[1] == "-c" and len(argv) < 3 or argv[1] != "-c" and argv[1][:1] in ("-", ""):
        return False
    if settings(env) != zygote.settings or names_a_file(env.get("TZ", "")):
        return False
    first = first_on_path(argv)
    if first is None or any(hides(p, preloaded) for p in [first] + path):
        return False
    sys.path[:0] = path
    return not (command.get("elsewhere") and hides_beneath("/workspace", preloaded))


def add_packages(zygote, barrier):
    """Adds the user's packages. Returns false if they hide preloaded modules."""
    user = find_user_site()
    if not user:
        return True
    if hides(user, zygote.preloaded):
        return False
    if runs_code(user):
        barrier.started()  # the packages' code runs now, and must not reach the barrier
    add_user_site()
    added = (p for p in sys.path if type(p) is str and p not in zygote.path and p != user)
    return not any(hides(p, zygote.preloaded) for p in added)


def reconfigure(zygote, command):
    if command.get("path"):
        again("sitecustomize")
    set_time_zone(command["env"])
    renew_clock()
    configure(command["argv"], zygote.layout[4])
    renew_main()
    sentinel(zygote)
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


# ---- a child's end ----
#
# At the end of a script Python destroys all modules. In a child that writes to, and so
# copies, most of the pages shared with the zygote, and takes longer than many scripts run.
# The fast exit skips it when no difference can be seen. It continues at the
# return address of Py_FinalizeEx, in the caller that exits the process. Only the callers
# know the exit status.

FAST_EXIT_STATUS = 84
MAX_LOOKED_AT = 20000  # objects; with more of them the check would take long, compared with the gain
MAX_BLOCKS = 10 * MAX_LOOKED_AT  # of memory, at least one per object; with more blocks a list of all objects may exceed the memory limit

# Modules of the standard library whose objects act on deletion, without a __del__ in
# every version, or that have further interpreters.
_ACTING = "_curses", "_dbm", "_gdbm", "_interpreters", "_sqlite3", "_tkinter", "_xxsubinterpreters", "readline"
_DYNLOAD = os.path.join(sys.base_exec_prefix, sys.platlibdir, "python%d.%d" % sys.version_info[:2], "lib-dynload") + "/"
_FILES = io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO

_mro = type.__dict__["__mro__"].__get__
_names = type.__dict__["__dict__"].__get__
_told = _weakref.ref.__dict__["__callback__"].__get__


def finalizes(kind):
    """Whether instances may act when they, or the objects that they refer to, are deleted.
    Runs no code of the script."""
    return any(c is _weakref.ref or "__del__" in _names(c) for c in _mro(kind))


def inert(thing, names):
    """Whether the deletion of an object has no effect that a script could see. The
    object's type finalizes."""
    kind = type(thing)
    if issubclass(kind, _weakref.ref):
        told = _told(thing)
        return told is None or type(told) in (type(inert), type(len)) and (told.__module__ is None or told.__module__ in names)
    return kind in (io.StringIO, io.BytesIO, Sentinel) or kind in _FILES and thing.closed


def lasting(things, known, names):
    """The objects of things that finalize, except for the known and the inert ones."""
    kinds = {k for k in set(map(type, things)) if finalizes(k)}
    return [t for t in things if type(t) in kinds and not any(t is k for k in known) and not inert(t, names)]


def foreign(module):
    """Whether a module may be an extension module from outside the standard library."""
    if type(module) is not type(sys):
        return True
    file = module.__dict__.get("__file__")
    return type(file) is str and not file.endswith((".py", ".pyc")) and not file.startswith(_DYNLOAD)



def standard_streams():
    """The standard streams, each with its buffer and its raw stream."""
    return [s for t in (sys.stdin, sys.stdout, sys.stderr) for s in (t, t.buffer, getattr(t.buffer, "raw", None))]


_objects, _debug, _freeze, _unfreeze = gc.get_objects, gc.get_debug, gc.freeze, gc.unfreeze  # a script may change gc's own
_blocks = sys.getallocatedblocks


def thaw():
    """Moves the frozen objects back to the collector's oldest generation. Otherwise the
    objects that they refer to would never be deleted, and files not be flushed."""
    _freeze()
    _unfreeze()


class Sentinel(list):
    """A child's sys.path_hooks. Python deletes it after the atexit functions and the
    flush of the output, just before it destroys the modules."""

    __slots__ = ("zygote", "streams")

    def __del__(self):
        try:
            if self.zygote.fast_exit and sys.is_finalizing() and self.nothing_shows():
                sys.stdout.flush()
                sys.stderr.flush()
                self.zygote.fast_exit.take()
        except BaseException:
            pass  # Python's normal finalization continues
        thaw()

    def nothing_shows(self):
        loaded, zygote = sys.modules, self.zygote
        if _thread._count() or any(name in loaded for name in _ACTING) or "PYTHONMALLOCSTATS" in zygote.settings:
            return False
        if gc.garbage or _debug():  # Python would print something about it
            return False
        if _blocks() - zygote.blocks > MAX_BLOCKS:
            return False
        if sys.stdout is not self.streams[3] or sys.stderr is not self.streams[6]:
            return False
        for name in reversed(loaded):
            if name == zygote.last_loaded:
                break
            if foreign(loaded[name]):
                return False
        made = _objects()
        if len(made) > MAX_LOOKED_AT or not any(thing is self.streams for thing in made):  # the script froze it
            return False
        return not lasting(made, self.streams, zygote.names)


class FastExit:
    """Leaves Py_FinalizeEx and continues in its caller, as if it had returned 0."""

    # The callee-saved registers: number in DWARF, then index of the word in
    # glibc's ucontext_t.
    _SAVED = {3: 16, 6: 15, 12: 9, 13: 10, 14: 11, 15: 12}  # rbx, rbp, r12 to r15
    _SP, _PC = 20, 21

    def __init__(self):
        """Raises AttributeError or OSError if this machine has no fast exit."""
        if os.uname().machine != "x86_64":
            raise OSError("not x86_64")
        self.libc, self.unwind = ctypes.PyDLL(None), ctypes.PyDLL("libgcc_s.so.1")
        self.libc.setcontext, self.libc.getcontext
        for name in ("GetIP", "GetCFA", "GetGR", "FindEnclosingFunction"):
            getattr(self.unwind, "_Unwind_" + name).restype = ctypes.c_size_t
        self.finalize = ctypes.cast(ctypes.pythonapi.Py_FinalizeEx, ctypes.c_void_p).value
        self.look = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self.look_at)
        self.inside, self.caller = False, None

    def look_at(self, frame, _):
        u, frame = self.unwind, ctypes.c_void_p(frame)
        at = u._Unwind_GetIP(frame)
        if self.inside:
            self.caller = {self._PC: at, self._SP: u._Unwind_GetCFA(frame)}
            self.caller.update((word, u._Unwind_GetGR(frame, number)) for number, word in self._SAVED.items())
            return 5  # _URC_END_OF_STACK: stop here
        self.inside = u._Unwind_FindEnclosingFunction(ctypes.c_void_p(at - 1)) == self.finalize
        return 0

    def take(self):
        """Returns only if the caller of Py_FinalizeEx can't be found."""
        self.unwind._Unwind_Backtrace(self.look, None)
        if not self.caller:
            return
        context = (ctypes.c_size_t * 256)()
        self.libc.getcontext(context)
        for word, value in self.caller.items():
            context[word] = value
        self.libc.setcontext(context)


def sentinel(zygote):
    hooks = Sentinel(sys.path_hooks)
    hooks.zygote, hooks.streams = zygote, standard_streams()
    sys.path_hooks = hooks


def again(name):
    """Imports a module again, after sys.path has got more entries in front."""
    sys.modules.pop(name, None)
    try:
        __import__(name)
    except ImportError as e:
        if e.name != name:
            raise


def child(zygote, request, fds):
    """Runs a child from the fork on. Returns when the script can run."""
    last = 4 + len(request["namespaces"])
    barrier, stdio, spaces, groups = Barrier(fds[0]), fds[1:4], fds[4:last], fds[last:]
    try:
        prepare_child(zygote, request, spaces, barrier.fd, stdio, groups)
        barrier.say(op="waiting")
        try:
            command = read_command(barrier.fd)
        except Exception as e:
            raise Failed("command", e) from e
        become(zygote, barrier, command)
    except BaseException as e:
        try:
            barrier.failed(e)
        finally:
            os._exit(127)


# ---- the zygote ----


class Zygote:
    """The state of the zygote, which children inherit, and the list of children."""

    def __init__(self):
        self.control = socket.socket(fileno=CONTROL)
        self.poll = select.poll()
        self.poll.register(CONTROL, select.POLLIN)
        self.children = {}  # pidfd -> (pid, sandbox)
        self.namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        with open("/proc/self/cmdline") as f:
            self.name = f.read().split("\0")[0]
        self.settings = settings(os.environ)
        self.layout = memory_layout()
        self.filter = self.last_filter = self.fast_exit = None
        self.prefault = Prefault()
        self.generators = []  # random number generators that children must reseed

    def receive(self):
        """One request and its descriptors; (None, []) if the daemon has closed the socket."""
        space = socket.CMSG_SPACE(4 * (4 + MAX_SPACES + MAX_GROUPS))
        try:
            data, ancillary, _, _ = self.control.recvmsg(MAX_PACKET, space, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            data, ancillary = b"", []
        fds = []
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds += struct.unpack("%di" % (len(content) // 4), content[: len(content) // 4 * 4])
        if not data:
            return None, fds
        try:
            request = json.loads(data)
            return (request if isinstance(request, dict) else {}), fds
        except ValueError:
            return {}, fds

    def send(self, **packet):
        self.control.send(json.dumps(packet).encode())

    def begin(self, request, fds):
        """Returns true in the child that rehearses the fast exit."""
        size, last = int(request["filter_bytes"]), int(request.get("last_filter_bytes") or 0)
        self.filter = Filter.read(fds[0], 0, size)
        self.last_filter = Filter.read(fds[0], size, last) if last else None
        imported, failed = [], []
        if not set(request["imports"]) <= set(MODULES):
            raise ValueError("imports %.200r" % request["imports"])
        # No threads: a child would lack them, and a fork of a threaded process may
        # deadlock (fork(2)).
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        if {"hashlib", "ssl"} & set(request["imports"]):
            keep_openssl()
        stop = watch_generators(self.generators) if request["imports"] else None
        for name in request["imports"]:
            try:
                __import__(name)
                imported.append(name)
            except BaseException:
                failed.append(name)
        if stop:
            stop()
        del os.environ["OPENBLAS_NUM_THREADS"]
        if len(os.listdir("/proc/self/task")) != 1:
            self.send(op="failed", stage="threads", errno=0)
            self.end()
        if os.stat("/proc/self/exe").st_mode & 0o044:
            # All children have this file as /proc/self/exe. A script could lock and
            # watch a readable file.
            self.send(op="failed", stage="program", errno=0)
            self.end()
        for finder in sys.meta_path:
            finder.find_spec("usercustomize", None)  # as Python does later; this caches the directories of sys.path
        self.preloaded = {n for n in sys.modules if "." not in n} - _bare
        self.path = frozenset(sys.path)
        self.last_loaded = next(reversed(sys.modules))
        self.names = frozenset(sys.modules) - {"__main__", "sys", "builtins"}
        gc.collect()
        lasts = lasting(gc.get_objects(), [self.control] + standard_streams(), self.names)
        gc.freeze()
        self.blocks = _blocks()
        if not lasts and self.try_fast_exit():
            return True
        self.send(op="ready", python="%d.%d.%d" % sys.version_info[:3], imported=imported, failed=failed, has=[n for n in MODULES if n in sys.modules])
        return False

    def try_fast_exit(self):
        """Returns true in the child that rehearses it. Later children use the fast exit
        only if this child stopped at its end and exited with the expected status."""
        try:
            self.fast_exit = FastExit()
        except (AttributeError, OSError):
            return False
        pid = os.fork()
        if pid == 0:
            self.control.detach()
            signal.alarm(10)
            self.rehearse()
            return True
        _, status = os.waitpid(pid, os.WUNTRACED)
        stopped = os.WIFSTOPPED(status)  # if false, it may have executed another Python
        if stopped:
            try:
                self.prefault = Prefault(written(pid))
            except (OSError, ValueError):
                pass  # the kernel doesn't show the pages
            os.kill(pid, signal.SIGCONT)
            _, status = os.waitpid(pid, 0)
        if not stopped or os.waitstatus_to_exitcode(status) != FAST_EXIT_STATUS:
            self.fast_exit, self.prefault = None, Prefault()
        return False

    def rehearse(self):
        """Runs a small script in this child like in other children, and makes the child
        stop at its end."""
        at_exit = getattr(_libc, "__cxa_atexit")
        checked(at_exit(getattr(_libc, "raise"), signal.SIGSTOP, None))
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # an alarm doesn't end a stopped process
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        script, barrier = os.memfd_create("script"), os.memfd_create("barrier")
        os.write(script, b"print(2 + 2)\nraise SystemExit(%d)\n" % FAST_EXIT_STATUS)
        command = {"argv": [self.name, "/proc/self/fd/%d" % script], "env": dict(os.environ)}
        text = json.dumps(command).encode()
        os.pwrite(barrier, struct.pack("<I", len(text)) + text, 0)
        renew(self.generators)
        renew_streams()
        try:
            drop_bounding_set()
        except OSError:
            pass  # other children may do it, as root of their sandboxes
        command = read_command(barrier)
        replace_environment(command["env"])
        become_python(self, Barrier(barrier), command)

    def fork(self, request, fds):
        """Returns true in the child, when the script can run."""
        sandbox, stage = request.get("sandbox"), "request"
        try:
            kinds = request["namespaces"]
            if not isinstance(kinds, list) or kinds[:1] != [CLONE_NEWPID] or len(fds) < 4 + len(kinds) or self.filter is None:
                raise OSError(22, "descriptors or namespaces are missing")
            stage, pid = "pid namespace", None
            checked(_libc.setns(fds[4], CLONE_NEWPID))
            try:
                stage = "fork"
                pid = os.fork()
            finally:
                if pid != 0:  # a child's getpid() may be the zygote's
                    checked(_libc.setns(self.namespace, CLONE_NEWPID))
        except Exception as e:
            self.send(op="failed", sandbox=sandbox, stage=stage, errno=getattr(e, "errno", 0) or 0)
            return False
        if pid == 0:
            self.control.detach()
            self.children.clear()  # a script must not know its siblings
            child(self, request, fds)
            return True
        pidfd = syscall("pidfd_open", pid, 0)
        self.children[pidfd] = pid, sandbox
        self.poll.register(pidfd, select.POLLIN)
        self.send(op="forked", sandbox=sandbox, pid=pid)
        return False

    def reap(self, pidfd):
        pid, sandbox = self.children.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self.send(op="ended", sandbox=sandbox, status=status)

    def serve(self):
        """Returns in a child only."""
        while True:
            for fd, _ in self.poll.poll():
                if fd != CONTROL:
                    self.reap(fd)
                elif self.serve_one():
                    return

    def serve_one(self):
        request, fds = self.receive()
        try:
            if request is None:
                self.end()
            elif request.get("op") == "init":
                return self.begin(request, fds)
            elif request.get("op") == "fork":
                return self.fork(request, fds)
            return False
        finally:
            if self.control.fileno() >= 0:  # a child has closed them already
                for fd in fds:
                    os.close(fd)

    def end(self):
        for pid, _ in self.children.values():
            os.kill(pid, signal.SIGKILL)
        os._exit(0)


def keep_openssl():
    """Keeps libcrypto from freeing its tables at the exit of a process, which would copy
    their pages. It must be called before a module uses libcrypto."""
    spec = sys.meta_path[-1].find_spec("_hashlib", None)
    try:
        with open(spec.origin, "rb") as f:
            name = re.search(rb"\0(libcrypto\.so[.0-9]*)\0", f.read())
        crypto = ctypes.CDLL(name[1].decode())
        crypto.OPENSSL_init_crypto(ctypes.c_uint64(0x00080000), None)  # OPENSSL_INIT_NO_ATEXIT
    except (AttributeError, OSError, TypeError):
        pass  # libcrypto is linked into the interpreter, or is an older version


def settle_signals():
    """Sets signals as in a fresh Python, whatever this process inherited."""
    default = bytes(32)  # struct kernel_sigaction
    for number in range(1, 65):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            syscall("rt_sigaction", number, default, None, 8)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def main():
    """Returns in a child only."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if p != here]
    sys.path_importer_cache.pop(here, None)
    os.environ.pop("PYTHONPATH", None)
    try:
        again("sitecustomize")  # the installation's, if it has one
    except Exception:
        pass  # Python, too, continues after an error in it
    try:
        settle_signals()
        prctl(PR_SET_DUMPABLE, 0)  # no process may read its memory, not even another zygote
        Zygote().serve()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


main()
if "sitecustomize" not in sys.modules:
    # Python continues as if this file did not exist.
    raise ImportError(name="sitecustomize")
