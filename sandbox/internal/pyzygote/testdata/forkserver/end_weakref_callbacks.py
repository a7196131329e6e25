import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, logging, weakref


class C:
    pass


def gone(name):
    return lambda _, write=os.write: write(1, b"callback: %s\n" % name)


kept, json.c, logging.Logger.c = C(), C(), C()
cycle = C()
cycle.cycle = cycle
refs = [weakref.ref(kept, gone(b"global")), weakref.ref(json.c, gone(b"preloaded module")), weakref.ref(cycle, gone(b"cycle"))]
json.ref = weakref.ref(kept, gone(b"global, ref in a preloaded module"))
json.ref2 = weakref.ref(logging.Logger.c, gone(b"preloaded class"))
json.dictionary = weakref.WeakValueDictionary(last=Last("value"))
json.keys = weakref.WeakKeyDictionary({C: Last("of a key")})
print("end")
