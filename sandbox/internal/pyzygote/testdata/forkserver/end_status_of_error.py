def f():
    g()


def g():
    raise LookupError("text")


f()
