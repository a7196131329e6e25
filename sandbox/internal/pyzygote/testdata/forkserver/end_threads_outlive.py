import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import atexit, threading
main_ends = threading.Event()
atexit.register(print, "atexit")


def work():
    mine = Last("local of a thread")
    threading.main_thread().join()
    print("the thread outlives main:", threading.main_thread().is_alive())
    raise KeyError("in a thread at the end")


t = threading.Thread(target=work, name="worker")
t.last = Last("of the thread")
t.start()
threading.local().x = Last("of a thread-local that is gone")
local = threading.local()
local.x = Last("of a thread-local")
print("end")
