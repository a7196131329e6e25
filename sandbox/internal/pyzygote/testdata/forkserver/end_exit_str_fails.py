import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import sys


class Code:
    def __str__(self):
        raise ValueError("no text")


kept = Last("global")
sys.exit(Code())
