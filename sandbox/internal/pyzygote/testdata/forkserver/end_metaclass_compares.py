import os, sys


class Meta(type):
    """Its classes can't be hashed, and say so when they are compared."""

    def __eq__(self, other, write=os.write):
        write(1, b"compared\n")
        return self is other

    def __getattribute__(self, name, write=os.write):
        write(1, b"asked for %s\n" % name.encode())
        return super().__getattribute__(name)


class C(metaclass=Meta):
    pass


kept = C()
print("end")
