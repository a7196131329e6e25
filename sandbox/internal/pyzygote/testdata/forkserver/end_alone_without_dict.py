import json


class Last:
    __slots__ = ()  # the garbage collector doesn't know it

    def __del__(self, write=__import__("os").write):
        write(1, b"gone\n")


json.x = Last()
