# differs: preimported modules are frozen
import gc
print(gc.get_freeze_count())
