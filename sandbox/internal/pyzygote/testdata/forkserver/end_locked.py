import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import io, json, signal, sys, threading
signal.alarm(20)  # from 3.14 on a Python waits for the thread, and for ever
lock, up = threading.Lock(), threading.Event()


class Slow(io.RawIOBase):
    """A stream that a daemon thread is in when the end comes."""

    def writable(self):
        return True

    def write(self, data):
        up.set()
        lock.acquire()
        return len(data)


lock.acquire()
json.stream = io.BufferedWriter(Slow())


def work():
    json.stream.write(b"x" * 100000)


threading.Thread(target=work, daemon=True).start()
up.wait()
kept = Last("global")
json.last = Last("json.last")
print("end")
