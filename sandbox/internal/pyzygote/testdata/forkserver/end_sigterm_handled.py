import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import atexit, json, os, signal, sys
atexit.register(print, "atexit")
kept, json.x = Last("global"), Last("json.x")


def handler(number, frame):
    print("handler", signal.Signals(number).name)
    sys.exit(9)


class Handler:
    last = Last("of a handler's class")

    def __call__(self, number, frame):
        print("callable")


signal.signal(signal.SIGTERM, handler)
signal.signal(signal.SIGUSR1, Handler())
os.kill(os.getpid(), signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGTERM)
print("never")
