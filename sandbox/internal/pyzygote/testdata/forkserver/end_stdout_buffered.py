# env: PYTHONUNBUFFERED=
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, os, sys


class Prints:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("prints", self.name)


kept, json.x = Prints("global"), Prints("json.x")
sys.stdout.write("not flushed, ")
os.write(1, b"written\n")
print("end")
