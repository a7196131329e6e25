import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import io, json, sys
sys.stdout = open("stdout.txt", "w")
sys.stderr = io.StringIO()
print("into the file")
print("into nothing", file=sys.stderr)
json.x = sys.stdout
sys.__stdout__.write("the old one, ")
kept = Last("global")
json.y = Last("json.y")


class Prints:
    def __del__(self):
        print("printed at the end")


prints, json.z = Prints(), Prints()
