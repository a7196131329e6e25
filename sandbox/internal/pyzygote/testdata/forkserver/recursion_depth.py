import sys
print(sys.getrecursionlimit())


def f(n):
    try:
        return f(n + 1)
    except RecursionError:
        return n


print(f(0))
