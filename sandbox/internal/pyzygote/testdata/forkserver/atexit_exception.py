import atexit


def fails():
    raise ValueError("in atexit")


atexit.register(print, "still called")
atexit.register(fails)
