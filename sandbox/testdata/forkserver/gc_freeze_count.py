# differs: what was imported ahead is frozen
import gc
print(gc.get_freeze_count())
