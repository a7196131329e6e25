import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import asyncio, json


async def forever(name):
    mine = Last("local of " + name)
    try:
        await asyncio.Event().wait()
    finally:
        print("finally", name)


async def agen():
    try:
        while True:
            yield 1
    finally:
        print("finally of an async generator")


async def step():
    await asyncio.sleep(0)


loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
loop.set_exception_handler(lambda loop, context: print("handler:", context["message"]))
task = loop.create_task(forever("a task"))
json.task = loop.create_task(forever("a task of a preloaded module"))
json.g = agen()
loop.run_until_complete(json.g.__anext__())
loop.run_until_complete(step())
future = loop.create_future()
future.set_exception(ValueError("never retrieved"))
del future
print("end")
