# order: none
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json


class Raises:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        raise ValueError(self.name)

    def __repr__(self):
        return "Raises(%s)" % self.name


class Exits(Raises):
    def __del__(self):
        raise SystemExit(7)


class Interrupts(Raises):
    def __del__(self):
        raise KeyboardInterrupt


class ReprFails(Raises):
    def __repr__(self):
        raise TypeError("in repr")


kept, exits, interrupts, repr_fails = Raises("global"), Exits("exits"), Interrupts("interrupts"), ReprFails("repr")
json.x, json.y, json.z = Raises("preloaded module"), Exits("preloaded module"), ReprFails("preloaded module")
json.JSONEncoder.x = Raises("preloaded class")
cycle = Raises("cycle")
cycle.cycle = cycle
Raises("at once")
print("end")
