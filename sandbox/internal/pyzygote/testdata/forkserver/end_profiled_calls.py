# differs: a forked child searches for objects to finalize
import os, sys


def profile(frame, event, arg, write=os.write):
    write(1, ("%s %s\n" % (event, frame.f_code.co_name)).encode())


sys.setprofile(profile)
