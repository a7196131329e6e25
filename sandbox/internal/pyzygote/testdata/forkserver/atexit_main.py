import atexit, sys


def look():
    print(sorted(vars(sys.modules["__main__"])), sys.exc_info())


atexit.register(look)
