"""skillrun for asyncio, on grpc.aio::

    import asyncio
    from skillrun import aio

    async def main():
        async with aio.connect() as client:
            async with await client.run("calculator", script="scripts/calc.py", args=["2 + 2"]) as run:
                async for chunk in run:
                    print(chunk.text, end="")

    asyncio.run(main())

The package skillrun has the same calls, with the same arguments, results, exceptions and guarantees.
Here a call is a coroutine, and a generator is an asynchronous iterator. Files of this machine are
read and written in threads, so that they hold nothing up.

A client belongs to the event loop in which its first call is made. Use ``async with`` for a run:
if a loop over it is left early, Python ends the iterator only some time later.
"""

from skillrun.aio.client import Client, connect
from skillrun.aio.run import Pipe, Run

__all__ = ["Client", "Pipe", "Run", "connect"]
