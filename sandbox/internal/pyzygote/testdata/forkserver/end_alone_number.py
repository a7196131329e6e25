import json


class Last(int):
    __slots__ = ()

    def __del__(self, write=__import__("os").write):
        write(1, b"gone\n")


json.JSONEncoder.x = {"key": (Last(5),)}
