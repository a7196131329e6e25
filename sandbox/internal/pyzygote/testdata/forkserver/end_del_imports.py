import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, logging


class Imports:
    def __init__(self, where, name):
        self.where, self.name = where, name

    def __del__(self, write=os.write, ascii=ascii, type=type, importer=__import__):
        try:
            word = type(importer(self.name)).__name__
        except BaseException as e:
            word = ascii(e)
        write(1, b"%s imports %s: %s\n" % (self.where.encode(), self.name.encode(), word.encode()))


for n, name in enumerate(("json", "json.tool", "colorsys", "sndhdr", "none", "_ctypes", "threading", "math")):
    globals()["g%d" % n] = Imports("global", name)
    setattr(json, "x%d" % n, Imports("preloaded module", name))
    setattr(logging.Logger, "x%d" % n, Imports("preloaded class", name))


class Statement:
    def __del__(self):
        import csv, quopri
        print("imported", csv.__name__, quopri.__name__)


kept, json.statement = Statement(), Statement()
print("end")
