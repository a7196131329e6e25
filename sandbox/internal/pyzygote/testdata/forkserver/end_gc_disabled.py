import gc, json, os


class Last:
    def __init__(self, name):
        self.name, self.cycle = name, self

    def __del__(self, write=os.write):
        write(1, b"gone: %s\n" % self.name)


gc.disable()
Last(b"of nothing")
kept = Last(b"global")
json.x = Last(b"module")
print("end")
