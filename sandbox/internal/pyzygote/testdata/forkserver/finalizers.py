import sys


class C:
    def __init__(self, n):
        self.n = n

    def __del__(self, write=sys.stderr.write):
        write("del %s\n" % self.n)


a = C("global")
_b = C("underscore")
c = C("cycle")
c.self = c


def f():
    C("local")


f()
print("end")
