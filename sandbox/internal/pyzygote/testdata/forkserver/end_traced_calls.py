# differs: a forked child searches for objects to finalize
import os, sys


def trace(frame, event, arg):
    os.write(1, ("%s %s\n" % (event, frame.f_code.co_name)).encode())
    return trace


sys.settrace(trace)
print("end")
