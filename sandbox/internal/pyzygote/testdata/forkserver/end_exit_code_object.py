import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, sys


class Code:
    def __str__(self):
        return "code, as text"


json.x = Last("json.x")
code = Code()
code.last = Last("of the code")
sys.exit(code)
