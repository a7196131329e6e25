"""The zygote: it imports modules and forks children.

It takes requests on descriptor 3, one packet each: first "init" with the modules to
import and the script's filter, then "fork" with the descriptors of a sandbox. It answers
each with a packet, and reports the end of each child.

It promises that a child is forked in the state of fork.py and become.py, or that the
answer names the stage that failed. A packet that is no request fails at the stage "request".
The zygote has one thread, runs only code of the interpreter's installation, and must survive
every packet after a valid "init"; before that it ends at an invalid one. It ends when
descriptor 3 closes, and its children end with it.
"""

import ctypes
import errno
import gc
import json
import os
import re
import select
import signal
import socket
import struct
import sys

from . import become, exit, fork, judge, prefault, renew
from .barrier import Barrier, Failed, parse, read_command
from .libc import CLONE_NEWPID, PR_SET_PDEATHSIG, checked, libc, prctl, syscall

CONTROL = 3
MAX_PACKET = 1 << 16  # of the daemon's requests
MAX_GROUPS = 8
MAX_SPACES = 8  # namespaces of a sandbox

# The modules that a zygote may import. An untrusted script selects some of these, and has
# no other influence on the zygote. Package sandbox reads this list.
MODULES = """
    argparse asyncio base64 bs4 collections contextlib copy csv dataclasses datetime decimal docx enum fractions
    functools glob hashlib html io itertools jinja2 json logging lxml math networkx numpy openpyxl operator
    os pandas pathlib PIL platform pptx pydantic pypdf random re reportlab requests scipy shlex shutil signal
    sqlite3 statistics string struct subprocess sympy tempfile textwrap time traceback types typing unicodedata
    unittest urllib uuid xml yaml zipfile zlib
""".split()


def is_number(sandbox):
    """Whether this can be the daemon's number of a fork, which has 32 bits."""
    return type(sandbox) is int and -(1 << 31) <= sandbox < 1 << 31


def child(zygote, request, fds):
    """Runs a child from the fork on. Returns when the script can run."""
    last = 4 + len(request["namespaces"])
    barrier, stdio, spaces, groups = Barrier(fds[0]), fds[1:4], fds[4:last], fds[last:]
    try:
        fork.prepare_child(zygote, request, spaces, barrier.fd, stdio, groups)
        barrier.say(op="waiting")
        try:
            command = read_command(barrier.fd)
        except Exception as e:
            raise Failed("command", e) from e
        become.become(zygote, barrier, command)
    except BaseException as e:
        try:
            barrier.failed(e)
        finally:
            os._exit(127)


class Missed:
    """The last finder of sys.meta_path. It notes the names of top-level modules that are not there."""

    def __init__(self):
        self.names = set()

    def find_spec(self, name, path=None, target=None):
        if path is None:
            self.names.add(name)


class Zygote:
    """The state of the zygote, which children inherit, and the list of children."""

    def __init__(self, bare):
        """bare: the modules of a Python that just started."""
        self.bare = bare
        self.control = socket.socket(fileno=CONTROL)
        self.poll = select.poll()
        self.poll.register(CONTROL, select.POLLIN)
        self.children = {}  # pidfd -> (pid, sandbox)
        self.namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        with open("/proc/self/cmdline") as f:
            self.name = f.read().split("\0")[0]
        self.settings = judge.settings(os.environ)
        self.layout = become.memory_layout()
        self.filter = self.fast_exit = None
        self.prefault = prefault.Prefault()
        self.generators = []  # random number generators that children must reseed

    def receive(self):
        """One packet and its descriptors: a request, {} if the packet is not a request, or None if the
        daemon has closed the socket."""
        space = socket.CMSG_SPACE(4 * (4 + MAX_SPACES + MAX_GROUPS))
        try:
            data, ancillary, _, _ = self.control.recvmsg(MAX_PACKET, space, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            data, ancillary = b"", []
        fds = []
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds += struct.unpack("%di" % (len(content) // 4), content[: len(content) // 4 * 4])
        if not data and dict(self.poll.poll(0)).get(CONTROL, 0) & select.POLLHUP:
            return None, fds  # else it is an empty packet
        try:
            return parse(data), fds
        except ValueError:
            return {}, fds

    def send(self, **packet):
        self.control.send(json.dumps(packet).encode())

    def fail(self, request, stage, number):
        """Answers a request that failed with an errno."""
        sandbox = request.get("sandbox")
        self.send(op="failed", sandbox=sandbox if is_number(sandbox) else 0, stage=stage, errno=number)

    def begin(self, request, fds):
        """Returns true in the child that rehearses the fast exit."""
        self.filter = fork.Filter.read(fds[0], int(request["filter_bytes"]))
        imported, failed = [], []
        if not set(request["imports"]) <= set(MODULES):
            raise ValueError("imports %.200r" % request["imports"])
        # No threads: a child would lack them, and a fork of a threaded process may
        # deadlock (fork(2)).
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        if {"hashlib", "ssl"} & set(request["imports"]):
            keep_openssl()
        stop = renew.watch_generators(self.generators) if request["imports"] else None
        missed = Missed()
        sys.meta_path.append(missed)
        for name in request["imports"]:
            known = name in missed.names
            try:
                __import__(name)
                imported.append(name)
            except BaseException:
                failed.append(name)
                if not known:
                    missed.names.discard(name)  # no imported module has looked for it
                # Python removes the package, but not the submodules that it has imported. A child that imports the package
                # would not set them as its attributes.
                for module in [m for m in sys.modules if m.partition(".")[0] == name]:
                    del sys.modules[module]
        sys.meta_path.remove(missed)
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
        # Also optional modules that an imported one has not found: a Python that starts near such a module finds it.
        self.preloaded = {n for n in sys.modules if "." not in n} - self.bare | missed.names
        self.path = frozenset(sys.path)
        self.last_loaded = next(reversed(sys.modules))
        self.names = frozenset(sys.modules) - {"__main__", "sys", "builtins"}
        gc.collect()
        lasts = exit.lasting(gc.get_objects(), [self.control] + exit.standard_streams(), self.names)
        gc.freeze()
        self.blocks = sys.getallocatedblocks()
        if request["fast_exit"] and not lasts and self.try_fast_exit():
            return True
        self.send(op="ready", python="%d.%d.%d" % sys.version_info[:3], imported=imported, failed=failed, has=[n for n in MODULES if n in sys.modules])
        return False

    def try_fast_exit(self):
        """Returns true in the child that rehearses it. Later children use the fast exit
        only if this child stopped at its end and exited with the expected status."""
        try:
            self.fast_exit = exit.FastExit()
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
                self.prefault = prefault.Prefault(prefault.written(pid))
            except (OSError, ValueError):
                pass  # the kernel doesn't show the pages
            os.kill(pid, signal.SIGCONT)
            _, status = os.waitpid(pid, 0)
        if not stopped or os.waitstatus_to_exitcode(status) != exit.STATUS:
            self.fast_exit, self.prefault = None, prefault.Prefault()
        return False

    def rehearse(self):
        """Runs a small script in this child like in other children, and makes the child
        stop at its end."""
        at_exit = getattr(libc, "__cxa_atexit")
        checked(at_exit(getattr(libc, "raise"), signal.SIGSTOP, None))
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # an alarm doesn't end a stopped process
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        script, barrier = os.memfd_create("script"), os.memfd_create("barrier")
        os.write(script, b"print(2 + 2)\nraise SystemExit(%d)\n" % exit.STATUS)
        command = {"argv": [self.name, "/proc/self/fd/%d" % script], "env": dict(os.environ), "dir": ""}
        text = json.dumps(command).encode()
        os.pwrite(barrier, struct.pack("<I", len(text)) + text, 0)
        renew.renew(self.generators)
        renew.renew_streams()
        try:
            fork.drop_bounding_set()
        except OSError:
            pass  # other children may do it, as root of their sandboxes
        command = read_command(barrier)
        become.replace_environment(command["env"])
        become.become_python(self, Barrier(barrier), command)

    def fork(self, request, fds):
        """Returns true in the child, when the script can run."""
        sandbox, stage = request.get("sandbox"), "request"
        try:
            kinds = request.get("namespaces")
            if not is_number(sandbox) or kinds not in (fork.NAMESPACES, fork.NAMESPACES + [fork.CLONE_NEWTIME]) or len(fds) < 4 + len(kinds) or self.filter is None:
                raise OSError(errno.EINVAL, "descriptors or namespaces are missing")
            stage, pid = "pid namespace", None
            checked(libc.setns(fds[4], CLONE_NEWPID))
            try:
                stage = "fork"
                pid = os.fork()
            finally:
                if pid != 0:  # a child's getpid() may be the zygote's
                    checked(libc.setns(self.namespace, CLONE_NEWPID))
        except Exception as e:
            self.fail(request, stage, getattr(e, "errno", 0) or 0)
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
            elif request.get("op") == "init" and self.filter is None:
                return self.begin(request, fds)
            elif request.get("op") == "fork":
                return self.fork(request, fds)
            self.fail(request, "request", errno.EINVAL)
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


def reset_signals():
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
