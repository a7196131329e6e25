import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, weakref


class C:
    pass


weakref.finalize(json, print, "a module")
weakref.finalize(json.JSONEncoder, print, "a class")
a, b, c = C(), C(), C()
weakref.finalize(a, print, "first")
weakref.finalize(b, print, "second").atexit = False
f = weakref.finalize(c, print, "third")
json.c = c
del c
weakref.finalize(Last, Last("of a finalizer").__repr__)


def fails():
    raise ValueError("in a finalizer")


weakref.finalize(a, fails)
print(f.alive, "end")
