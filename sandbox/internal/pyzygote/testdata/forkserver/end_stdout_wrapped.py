import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import io, json, sys
sys.stdout = io.TextIOWrapper(sys.stdout.buffer, "utf-16")
print("utf-16")
sys.stdout = io.TextIOWrapper(io.BufferedWriter(open(1, "wb", buffering=0, closefd=False)), "utf-8")
sys.stdout.write("not flushed")
json.stream = open(1, "w", closefd=False)
json.stream.write("of a preloaded module")


class Tee:
    def write(self, text):
        sys.__stderr__.write("tee: " + text)

    def flush(self):
        sys.__stderr__.flush()


sys.stderr = Tee()
1 / 0
