import sys


def f():
    f()


try:
    f()
except RecursionError:
    print("recursion")
sys.exit(13)
