"""State of imported modules and of the interpreter that a child must not share with its
siblings: random numbers, keys, names, numbers of processes and threads, times, streams."""

import io
import os
import sys


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


def renew_network():
    """Has urllib3 look again whether it can use IPv6, which it does at its import. It must be called in
    the network of the child."""
    for package in ("urllib3", "pip._vendor.urllib3"):
        connection = sys.modules.get(package + ".util.connection")
        if hasattr(connection, "HAS_IPV6") and hasattr(connection, "_has_ipv6"):
            connection.HAS_IPV6 = connection._has_ipv6("::1")


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
