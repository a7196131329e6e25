"""The end of a script: the fast exit.

Theory of operation

At the end of a script Python destroys all modules. In a child that writes to, and so
copies, most of the pages shared with the zygote, and takes longer than many scripts run.

It takes a child whose script has ended: the atexit functions have run and the output is
flushed. Python then deletes sys.path_hooks, here a Sentinel, just before it destroys the
modules. The Sentinel checks whether the destruction could have a visible effect. If not,
the child leaves Py_FinalizeEx and continues at its return address, in the caller that
exits the process, because only the callers know the exit status.

It promises that output, files, exit status and order of events are the same as without
it. Whatever can act at its deletion keeps the fast exit from being taken: threads, objects
with __del__ or __release_buffer__, callbacks of weak references, open files, modules of
_ACTING, extension modules from outside the standard library, changed standard streams, and
more objects than can be checked in a short time.

In these cases, and after any exception, Python's own finalization continues, as if this
file did not exist. The Sentinel thaws the frozen objects for it. No script takes the fast exit
on a machine that is not x86_64, in a Python without libgcc's unwinder, in a zygote whose
rehearsal (Zygote.rehearse) ended otherwise than expected, and with
prepared.python_fast_exit: false.
"""

import _thread
import _weakref
import ctypes
import gc
import io
import os
import sys

STATUS = 84  # the exit status of the rehearsal
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
    Since Python 3.12 the deletion of a memoryview calls __release_buffer__ of its object.
    Runs no code of the script."""
    return any(c is _weakref.ref or "__del__" in _names(c) or "__release_buffer__" in _names(c) for c in _mro(kind))


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
        if any(hasattr(s, "kept") for s in self.streams):  # Python's flush may have failed, and the exit status shows that
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


def sentinel(zygote, more):
    """more: files that belong to the standard streams."""
    hooks = Sentinel(sys.path_hooks)
    hooks.zygote, hooks.streams = zygote, standard_streams() + more
    sys.path_hooks = hooks
