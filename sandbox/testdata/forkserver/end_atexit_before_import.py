# differs: what modules registered with atexit when they were imported ahead is called last
import atexit
atexit.register(print, "registered before the imports")
import concurrent.futures.thread, logging, threading


class Handler(logging.Handler):
    def flush(self):
        print("logging flushes")


threading._register_atexit(print, "of threads")
kept = Handler()
print("end")
