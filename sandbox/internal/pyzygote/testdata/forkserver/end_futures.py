import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import concurrent.futures, json, threading
started, main_ends = threading.Event(), threading.Event()


def first():
    started.set()
    main_ends.wait()
    print("first ends after main")
    return Last("result")


pool = concurrent.futures.ThreadPoolExecutor(1)
threading._register_atexit(main_ends.set)  # called before the pool waits for its threads
f = pool.submit(first)
f.add_done_callback(lambda f: print("done", f.done()))
json.g = pool.submit(print, "second")
started.wait()
failing = pool.submit(divmod, 1, 0)
try:
    concurrent.futures.ThreadPoolExecutor(1).submit(pool.submit, print, "from a thread").result()
except RuntimeError as e:
    print(e)
print("end")
