"""Starts the fork server (package forkserver), which makes a CPython (3.9 to 3.14) into a
Python zygote: the zygote imports the modules that scripts need, and forks children that
run the scripts.

Theory of operation

The daemon puts this file and the package into a separate directory. It starts the
interpreter by the name that scripts use, with no arguments and with PYTHONPATH set to
that directory. The rest of the environment is the same as for scripts. Python imports
sitecustomize at the end of its start, before it determines the program to run. The zygote
never leaves that import: it imports modules and serves fork requests (zygote.py).

A child moves into a sandbox that waits, gives up everything that it inherited and waits
(fork.py). When its command line comes, it becomes the script and returns from this import,
or executes the command line if a forked Python could differ from a started one
(become.py, judge.py). At the end of the script it skips the destruction of modules, unless
the script could notice (exit.py).

A script shares with its siblings: preloaded modules in sys.modules, the hash seed, the
layout of the address space, and objects that gc.freeze keeps out of collections. renew.py
lists the state that each child makes fresh. The package is in no child's sys.modules and
its directory on no child's sys.path.
"""

import sys

_bare = frozenset(sys.modules)  # the modules of a Python that just started

import os

from forkserver import zygote
from forkserver.libc import PR_SET_DUMPABLE, prctl


def again(name):
    """Imports a module again, after sys.path has got more entries in front."""
    sys.modules.pop(name, None)
    try:
        __import__(name)
    except ImportError as e:
        if e.name != name:
            raise


def forget_package():
    """Removes every trace of the package from the state that scripts see."""
    for name in [n for n in sys.modules if n.partition(".")[0] == "forkserver"]:
        del sys.modules[name]
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if p != here]
    for directory in (here, os.path.join(here, "forkserver")):
        sys.path_importer_cache.pop(directory, None)
    os.environ.pop("PYTHONPATH", None)


def main():
    """Returns in a child only."""
    forget_package()
    try:
        again("sitecustomize")  # the installation's, if it has one
    except Exception:
        pass  # Python, too, continues after an error in it
    try:
        zygote.reset_signals()
        prctl(PR_SET_DUMPABLE, 0)  # no process may read its memory, not even another zygote
        zygote.Zygote(_bare).serve()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


main()
if "sitecustomize" not in sys.modules:
    # Python continues as if this file did not exist.
    raise ImportError(name="sitecustomize")
