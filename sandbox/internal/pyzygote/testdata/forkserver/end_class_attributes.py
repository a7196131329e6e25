# order: none
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import argparse, collections, decimal, enum, json, logging, pathlib, subprocess, threading
for n, owner in enumerate((
    json.JSONEncoder, json.JSONDecoder, collections.OrderedDict, enum.Enum, logging.Logger, logging.Handler, pathlib.Path,
    subprocess.Popen, threading.Thread, argparse.ArgumentParser,
)):
    try:
        setattr(owner, "x", Last("%d %s.x" % (n, owner.__name__)))
    except (AttributeError, TypeError) as e:
        print(e)


class Mine(json.JSONEncoder):
    attribute = Last("attribute of a subclass")


class Thread(threading.Thread):
    attribute = Last("attribute of a thread's class")


kept = Mine()
print("end")
