# order: none
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import abc, codecs, collections.abc, copyreg, functools, json, locale, logging, re, signal, string, struct, sys, threading, warnings


class Named:
    """A callable, or whatever else, that says when it goes."""

    def __init__(self, name):
        self.name = name
        self.last = Last(name)

    def __call__(self, *args, **kwargs):
        return None

    __hash__ = object.__hash__


codecs.register(Named("codecs.register"))
codecs.register_error("mine", Named("codecs.register_error"))
copyreg.pickle(type(Named("x")), Named("copyreg.pickle"))
copyreg.dispatch_table[int] = Named("copyreg.dispatch_table")
os.register_at_fork(before=Named("os.register_at_fork"))
signal.signal(signal.SIGUSR1, Named("signal.signal"))
sys.meta_path.append(Named("sys.meta_path"))
sys.path_hooks.append(Named("sys.path_hooks"))
sys.path_importer_cache["mine"] = Named("sys.path_importer_cache")
sys.path.append(Last("sys.path"))
sys.argv.append(Last("sys.argv"))
sys.displayhook = Named("sys.displayhook")
sys.excepthook = Named("sys.excepthook")
sys.unraisablehook = Named("sys.unraisablehook")
sys.breakpointhook = Named("sys.breakpointhook")
sys.ps1 = Last("sys.ps1")
sys.last_value = Last("sys.last_value")
sys.stdin = Last("sys.stdin")
warnings.showwarning = Named("warnings.showwarning")
warnings.filters.append(("ignore", None, Warning, None, 12345678))
logging._loggerClass = type("Logger", (logging.Logger,), {"x": Last("logging._loggerClass")})
logging.setLogRecordFactory(Named("logging.setLogRecordFactory"))
logging.addLevelName(99, Last("logging.addLevelName"))
threading.excepthook = Named("threading.excepthook")
re.compile("a pattern that nothing else has")
json.dumps = Named("json.dumps")
json.loads.__kwdefaults__["cls"] = Last("json.loads's default")
json.encoder.JSONEncoder.default = Named("a method of a preloaded class")
functools.wraps.__dict__["x"] = Last("functools.wraps.x")
locale.x = Last("locale.x")
string.Formatter.x = Last("string.Formatter.x")


class Registered:
    x = Last("of a class registered with an ABC")


collections.abc.Sized.register(Registered)


@functools.lru_cache
def cached(x):
    return Last("lru_cache")


cached(1)


@functools.singledispatch
def dispatch(x):
    pass


dispatch.register(Registered, Named("singledispatch"))
print("end")
