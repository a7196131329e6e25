import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import atexit, json, os, signal
atexit.register(print, "atexit")
kept, json.x = Last("global"), Last("json.x")
f = open("kept.txt", "w")
f.write("kept")


def interrupted():
    mine = Last("local")
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()


interrupted()
