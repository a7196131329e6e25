import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import atexit, concurrent.futures, json, logging, multiprocessing, threading, weakref
atexit.register(print, "first")
atexit.register(Last("of a callback").__repr__)
threading._register_atexit(print, "of threads")
weakref.finalize(Last, print, "finalizer")


class Handler(logging.Handler):
    def flush(self):
        print("logging flushes")


json.handler = Handler()


def register_more():
    print("registers")
    atexit.register(print, "registered late")
    json.late = Last("made late")


atexit.register(register_more)
multiprocessing.util.Finalize(None, print, ("multiprocessing's",), exitpriority=1)


@atexit.register
def unregisters():
    atexit.unregister(never)
    print("unregisters")


def never():
    print("never")


atexit.register(never)
atexit._run_exitfuncs()
atexit.register(print, "after they ran")
print("end")
