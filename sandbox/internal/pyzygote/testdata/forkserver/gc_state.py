import gc
print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.garbage, gc.callbacks)


class C:
    pass


c = C()
c.c = c
del c
print(gc.collect() > 0)
