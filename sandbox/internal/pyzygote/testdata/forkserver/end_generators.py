import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, logging


def generator(name):
    mine = Last("local of " + name)
    try:
        yield
    finally:
        print("finally", name)


def stubborn():
    try:
        yield
    except GeneratorExit:
        yield "another"


def started(g):
    next(g)
    return g


kept = started(generator("a global"))
json.g = started(generator("a preloaded module"))
logging.Logger.g = started(generator("a preloaded class"))
json.never = generator("never started")
json.stubborn = started(stubborn())


class C:
    pass


cycle = C()
cycle.cycle, cycle.g = cycle, started(generator("a cycle"))
delegating = started(x for x in [generator("delegated")])


def outer():
    yield from generator("yield from")


json.outer = started(outer())
print("end")
