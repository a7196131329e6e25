"""skillrun for asyncio, on grpc.aio::

    import asyncio
    from skillrun import aio

    async def main():
        async with aio.connect() as client:
            async with await client.run("calculator", script="scripts/calc.py", args=["2 + 2"]) as run:
                async for chunk in run:
                    print(chunk.text, end="")

    asyncio.run(main())

The calls, their arguments, results, exceptions and guarantees are those of the package skillrun.
A call is a coroutine, and what yields is an asynchronous iterator. Files of this machine are
read and written in threads, so that they hold nothing up.

A client belongs to the event loop in which its first call is made. Use ``async with`` for a run:
if a loop over it is left early, Python ends the iterator only some time later.
"""

from skillrun.aio.client import Client, connect
from skillrun.aio.run import Pipe, Run

__all__ = ["Client", "Pipe", "Run", "connect"]
