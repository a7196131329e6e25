import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import builtins, json
real = print


def noisy(*args, **kwargs):
    real("noisy", *args, **kwargs)


builtins.print = noisy
builtins.extra = Last("builtins.extra")
builtins.open = Last("builtins.open")
real_import = builtins.__import__


def importer(name, *args, **kwargs):
    real("import", name)
    return real_import(name, *args, **kwargs)


builtins.__import__ = importer
builtins._ = Last("builtins._")


class Prints:
    def __del__(self):
        print("in del", extra is None)
        import json


kept, json.x = Prints(), Prints()
__builtins__.more = Last("more")
print("end")
