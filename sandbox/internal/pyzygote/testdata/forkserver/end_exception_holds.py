import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, sys


def fails():
    mine = Last("local of the traceback")
    json.exception = ValueError("kept")
    try:
        raise json.exception
    except ValueError as e:
        json.traceback = e.__traceback__
        raise KeyError("the last") from e


kept = Last("global")


def hook(kind, value, traceback):
    print("hook", kind.__name__, hasattr(sys, "last_value"))
    sys.__excepthook__(kind, value, traceback)


sys.excepthook = hook
hook.last = Last("of the hook")
fails()
