import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import atexit, concurrent.futures
pool = concurrent.futures.ThreadPoolExecutor(1)
atexit.register(pool.submit, print, "too late")
pool.submit(print, "in time").result()
print("end")
