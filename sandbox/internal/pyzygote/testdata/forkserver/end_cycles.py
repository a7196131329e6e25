import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, logging


def cycle(name):
    one, two = Last(name), Last(name + ", other half")
    one.other, two.other = two, one
    return one


kept = cycle("of a global")
cycle("of nothing")
json.x = cycle("of a preloaded module")
json.JSONEncoder.x = cycle("of a preloaded class")
with_module = Last("with a preloaded module")
with_module.module, logging.with_module = logging, with_module
with_class = Last("with a preloaded class")
with_class.type, json.JSONDecoder.x = json.JSONDecoder, with_class
del with_module, with_class
print("end")
