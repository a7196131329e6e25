import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import colorsys, sndhdr
colorsys.x = Last("colorsys.x")
colorsys._x = Last("colorsys._x")
sndhdr.x = Last("sndhdr.x")
print("end")
