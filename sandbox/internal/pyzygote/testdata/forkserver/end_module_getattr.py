import json, sys


def __getattr__(name):
    sys.stderr.write("asked for %s\n" % name)
    raise AttributeError(name)


json.__getattr__ = __getattr__
class Asks:
    def __del__(self):
        try:
            json.nothing
        except AttributeError as e:
            print(e)


kept, json.x = Asks(), Asks()
