import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, logging, sys, types
json.x, logging.x = Last("json.x, removed from sys.modules"), Last("logging.x")
del sys.modules["json"]
sys.modules["object"] = Last("in sys.modules")
sys.modules["none"] = None
sys.modules["module"] = types.ModuleType("module")
sys.modules["module"].x = Last("of a made module")


class Module(types.ModuleType):
    def __del__(self, write=os.write):
        write(2, b"gone: module %s\n" % self.__name__.encode())


sys.modules["mine"] = Module("mine")
sys.modules["logging"] = logging
import json as again
print(again is not json, sorted(set(sys.modules) & {"object", "none", "module", "mine"}))
