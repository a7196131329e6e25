import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import atexit, json, os
atexit.register(print, "never")
kept, json.x = Last("never"), Last("never")
f = open("lost.txt", "w")
f.write("lost")
print("end")
os._exit(6)
