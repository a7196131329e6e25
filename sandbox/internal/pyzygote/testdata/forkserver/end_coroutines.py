import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, types


async def never(name):
    pass


@types.coroutine
def pause():
    yield


async def suspended(name):
    mine = Last("local of " + name)
    try:
        await pause()
    finally:
        print("finally", name)


async def agen(name):
    try:
        yield 1
    finally:
        print("finally", name)


kept = never("global")
json.c = never("module")
paused = suspended("a global")
paused.send(None)
json.paused = suspended("a preloaded module")
json.paused.send(None)
json.agen = agen("async generator")
try:
    json.agen.__anext__().send(None)
except StopIteration:
    pass
never("nothing")
print("end")
