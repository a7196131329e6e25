import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, logging


class Opens:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        with open(self.name, "w") as f:
            f.write("by " + self.name)
        print("wrote", self.name)


class Keeps(Opens):
    def __del__(self):
        f = open(self.name, "w")
        f.write("by " + self.name)
        json.kept = f
        Opens.kept = f


class Holds(Opens):
    def __del__(self, open=open, write=os.write, ascii=ascii):
        try:
            with open(self.name, "w") as f:
                f.write("by " + self.name)
        except BaseException as e:
            write(1, ascii(e).encode() + b"\n")


g, json.x, json.JSONEncoder.x, logging.x = Opens("global"), Opens("module"), Opens("class"), Opens("logging")
k = Keeps("keeps")
h, json.h, json.JSONEncoder.h = Holds("holds global"), Holds("holds module"), Holds("holds class")
cycle = Opens("cycle")
cycle.cycle = cycle
print("end")
