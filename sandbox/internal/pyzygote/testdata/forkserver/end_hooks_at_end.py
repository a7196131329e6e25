# order: none
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import atexit, json, sys, threading


def unraisable(args):
    print("unraisable:", args.exc_type.__name__, args.err_msg, args.object is None)


def in_thread(args):
    print("in a thread:", args.exc_type.__name__, args.thread.name)


class Raises:
    def __del__(self):
        raise ValueError


sys.unraisablehook, threading.excepthook = unraisable, in_thread
in_thread.last, unraisable.last = Last("of a hook"), Last("of a hook, other")
kept, json.x = Raises(), Raises()
atexit.register(divmod, 1, 0)


def work():
    threading.main_thread().join()
    raise KeyError


threading.Thread(target=work, name="late").start()
print("end")
