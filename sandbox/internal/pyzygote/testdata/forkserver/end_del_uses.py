import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, logging, os.path, re, sys


def helper():
    return "helper"


class Uses:
    """What of the world is left."""

    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write, ascii=ascii):
        for what in (
            lambda: json.dumps([1]), lambda: os.path.join("a", "b"), lambda: re.sub("a", "b", "a"), lambda: logging.getLogger("x").name,
            lambda: helper(), lambda: Uses.__name__, lambda: sys.version_info[0], lambda: sys.modules["json"].__name__, lambda: print("prints"),
            lambda: __name__, lambda: sys.stdout.encoding, lambda: sys.path[0], lambda: len(sys.modules) > 10, lambda: sys.is_finalizing(),
            lambda: "%d" % sys.getrefcount(None) > "0", lambda: open("/dev/null").close(), lambda: sorted(globals())[:3],
        ):
            try:
                said = ascii(what())
            except BaseException as e:
                said = ascii(e)
            write(1, b"%s: %s\n" % (self.name.encode(), said.encode()))


g = Uses("global")
json.x = Uses("preloaded module")
json.JSONEncoder.x = Uses("preloaded class")
sys.x = Uses("sys")
cycle = Uses("cycle")
cycle.cycle = cycle
print("end")
