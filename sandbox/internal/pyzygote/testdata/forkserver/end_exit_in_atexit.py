import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import atexit, json, sys
kept, json.x = Last("global"), Last("json.x")
atexit.register(print, "before")
atexit.register(sys.exit, 3)
atexit.register(print, "after")
sys.exit(4)
