# order: none
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, os, tempfile, warnings
warnings.simplefilter("always")
tempfile._name_sequence = iter("name%d" % n for n in range(100))
d = tempfile.TemporaryDirectory()
open(os.path.join(d.name, "inside"), "w").close()
json.d = tempfile.TemporaryDirectory()
f = tempfile.NamedTemporaryFile()
json.f = tempfile.NamedTemporaryFile("w")
json.f.write("x")
json.s = tempfile.SpooledTemporaryFile()
json.s.write(b"x")
kept = tempfile.NamedTemporaryFile(delete=False)
kept.write(b"kept")
cycle = Last("cycle")
cycle.cycle, cycle.d, cycle.f = cycle, tempfile.TemporaryDirectory(), tempfile.NamedTemporaryFile()
del cycle
print(sorted(os.listdir("/tmp")))
