import functools
import io
import json
import logging
import threading


def unflushed(name, mode="w"):
    f = open(name, mode)
    f.write("data of " + name if mode == "w" else b"data of " + name.encode())
    return f


a_global = unflushed("global")
_private = unflushed("private")
binary = unflushed("binary", "wb")
json.file = unflushed("preloaded-module")
json._file = unflushed("preloaded-module-private", "wb")
json.JSONEncoder.file = unflushed("preloaded-class")
json.dumps.file = unflushed("preloaded-function")


class C:
    attribute = unflushed("class-attribute")


cycle = C()
cycle.cycle, cycle.file = cycle, unflushed("cycle")
del cycle
kept_cycle = C()
kept_cycle.cycle, kept_cycle.file = kept_cycle, unflushed("kept-cycle")
json.cycle = C()
json.cycle.cycle, json.cycle.file = json.cycle, unflushed("cycle-of-preloaded-module")
through = C()
through.json, json.through, through.file = json, through, unflushed("cycle-through-preloaded-module")
del through


class Quiet(logging.StreamHandler):
    def flush(self):
        pass


logging.getLogger().addHandler(Quiet(unflushed("logging-handler")))
logging.getLogger("x").file = unflushed("logger")


def function(f=unflushed("default")):
    return lambda: f


closure = function(unflushed("closure"))


@functools.lru_cache
def cached(name):
    return unflushed(name)


cached("lru-cache")
local = threading.local()
local.file = unflushed("thread-local")
partial = functools.partial(print, file=unflushed("partial"))


def generator():
    with unflushed("generator"):
        yield


suspended = generator()
next(suspended)
json.generator = generator()


def wrapped():
    raw = open("wrapped", "wb")
    return io.TextIOWrapper(io.BufferedWriter(raw.detach()))


json.wrapped = wrapped()
json.wrapped.write("data of wrapped")
print("end")
