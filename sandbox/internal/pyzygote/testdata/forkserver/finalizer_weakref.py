import weakref


class C:
    pass


c = C()
weakref.finalize(c, print, "finalized")
print("end")
