import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, sys
kept, json.x = Last("global"), Last("json.x")
sys.stdout.close()
try:
    print("lost")
except ValueError as e:
    print(e, file=sys.stderr)
sys.stderr.flush()
sys.__stderr__.close()
