# env: PYTHONASYNCIODEBUG=1
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import asyncio, json


async def forever():
    await asyncio.Event().wait()


async def main():
    json.task = asyncio.create_task(forever())
    await asyncio.sleep(0)
    forever()


loop = asyncio.new_event_loop()
loop.slow_callback_duration = float("inf")  # a busy machine is no difference
loop.run_until_complete(main())
print("end")
