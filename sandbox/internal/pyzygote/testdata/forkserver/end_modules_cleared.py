import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, sys
json.x, kept = Last("json.x"), Last("global")
sys.modules.clear()
print("end")
