import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, sys, types
kept = Last("global of the old main")
json.main = main = sys.modules["__main__"]
new = types.ModuleType("__main__")
new.x = Last("global of the new main")
sys.modules["__main__"] = new
del new
print("end")
