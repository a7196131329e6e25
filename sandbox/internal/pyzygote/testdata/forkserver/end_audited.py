import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, sys


def hook(event, args, write=os.write):
    if event in ("cpython._PySys_ClearAuditHooks", "open", "cpython.run_stdin", "sys.unraisablehook"):
        write(1, b"audit: %s\n" % event.encode())


class Opens:
    def __del__(self, open=open):
        open("/dev/null").close()


sys.addaudithook(hook)
kept, json.x = Opens(), Opens()
json.y = Last("json.y")
print("end")
