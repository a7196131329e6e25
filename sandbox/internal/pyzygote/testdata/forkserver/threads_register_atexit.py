import atexit, threading
atexit.register(print, "atexit")
threading._register_atexit(print, "threading atexit")
print("end")
