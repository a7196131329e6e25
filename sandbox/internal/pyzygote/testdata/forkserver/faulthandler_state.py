import faulthandler, sys
print(faulthandler.is_enabled())
sys.stdout.flush()
faulthandler.dump_traceback(all_threads=False)
