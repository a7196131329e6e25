import atexit
atexit.register(print, "called")
1 / 0
