import json


class Last:
    def __del__(self, write=__import__("os").write):
        write(1, b"gone\n")


json.JSONEncoder.x = Last()
