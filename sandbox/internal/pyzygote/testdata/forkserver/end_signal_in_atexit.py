import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import atexit, json, os, signal
json.x = Last("json.x")
signal.signal(signal.SIGUSR1, lambda *a: print("handled in atexit"))
atexit.register(print, "last")
atexit.register(os.kill, os.getpid(), signal.SIGINT)
atexit.register(os.kill, os.getpid(), signal.SIGUSR1)


class Kills:
    def __del__(self, kill=os.kill, pid=os.getpid()):
        kill(pid, signal.SIGUSR1)


kept = Kills()
print("end")
