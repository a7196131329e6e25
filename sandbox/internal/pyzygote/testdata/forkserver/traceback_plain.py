def f(x):
    return g(x)


def g(x):
    return 1 / x


f(0)
