import gc


class Saved:
    def __repr__(self):
        return "Saved"


gc.collect()
gc.set_debug(gc.DEBUG_SAVEALL)
cycle = Saved()
cycle.cycle = cycle
del cycle
gc.collect()
print([o for o in gc.garbage if isinstance(o, Saved)], gc.is_tracked(gc.garbage))
gc.garbage.clear()
gc.set_debug(0)
