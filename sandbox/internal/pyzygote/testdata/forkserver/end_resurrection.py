import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json


class Back:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"tried: %s\n" % self.name.encode())
        json.back = self


kept, json.x = Back("global"), Back("json.x")
cycle = Back("cycle")
cycle.cycle = cycle
print("end")
