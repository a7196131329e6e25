import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import atexit, json, os, sys
atexit.register(print, "atexit")
kept, json.x = Last("global"), Last("json.x")
f = open("shared.txt", "w")
f.write("unflushed,")
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    f.write("child")
    print("child ends")
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
pid = os.fork()
if pid == 0:
    os._exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
