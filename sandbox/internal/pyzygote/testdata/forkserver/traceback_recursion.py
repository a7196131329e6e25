import sys
sys.setrecursionlimit(60)


def f(n):
    return f(n + 1)


f(0)
