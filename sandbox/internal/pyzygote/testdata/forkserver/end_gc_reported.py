import gc


class C:
    def __repr__(self):
        return "C"


gc.set_debug(gc.DEBUG_UNCOLLECTABLE)
gc.garbage.append(C())
