import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, sys
kept = Last("global")
json.main = sys.modules["__main__"]
json.globals = globals()
self = sys.modules["__main__"]
print("end")
