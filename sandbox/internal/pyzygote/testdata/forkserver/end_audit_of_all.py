# differs: a forked child searches for objects to finalize
import os, sys


def hook(event, args, write=os.write):
    write(1, event.encode() + b"\n")


sys.addaudithook(hook)
