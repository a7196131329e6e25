# env: PYTHONTRACEMALLOC=5
# order: none
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, socket, subprocess, sys, tempfile, warnings
kept = open("global", "w")
json.x = open("module", "w")
json.JSONEncoder.x = open("class", "w")
open("at-once", "w")
cycle = Last("cycle")
cycle.cycle, cycle.file = cycle, open("cycle", "w")
pair = socket.socketpair()
json.y = tempfile.TemporaryFile()
tempfile._name_sequence = iter(("made", "again"))
temporary = tempfile.TemporaryDirectory(dir=".")


async def never():
    pass


json.c = never()
warnings.warn("deprecated", DeprecationWarning)
print(warnings.filters == sys.warnoptions, sys.warnoptions, sys.flags.dev_mode, len(warnings.filters))
