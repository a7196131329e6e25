import gc, json, os


class Last:
    def __init__(self, name):
        self.name, self.cycle = name, self

    def __del__(self, write=os.write):
        write(1, b"gone: %s\n" % self.name)


gc.freeze()
Last(b"made after freezing")
kept = Last(b"global")
print(gc.get_freeze_count() > 0)
gc.unfreeze()
print(gc.get_freeze_count())
