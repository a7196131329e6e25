# order: none
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json
zebra, _private, __dunder__ = Last("zebra"), Last("_private"), Last("__dunder__")
apple = Last("apple")
held = [Last("in a list")]


def function(default=Last("default")):
    pass


function.attribute = Last("function attribute")
Last.attribute = Last("attribute of its own class")
print("end")
