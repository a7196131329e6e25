import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import sys, threading
forever, up = threading.Event(), threading.Event()


def work():
    mine = Last("local of a daemon thread")
    up.set()
    forever.wait()


t = threading.Thread(target=work, daemon=True)
t.last = Last("of the daemon thread")
t.start()
up.wait()
kept = Last("global")
import json
json.x = Last("json.x")
sys.exit("end")
