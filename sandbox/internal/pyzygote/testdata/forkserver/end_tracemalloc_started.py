import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, tracemalloc, warnings
warnings.simplefilter("always")
tracemalloc.start(3)


def make(name):
    return open(name, "w")


kept, json.x = make("global"), make("module")
make("at-once")
print("end")
