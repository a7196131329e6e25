# differs: atexit functions of preimported modules run last
import atexit
atexit.register(print, "registered before the imports")
import concurrent.futures.thread, logging, threading


class Handler(logging.Handler):
    def flush(self):
        print("logging flushes")


threading._register_atexit(print, "of threads")
kept = Handler()
print("end")
