import asyncio
import os
import signal


async def answer(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()


async def ask(reader, writer):
    writer.write(b"hello\n")
    return await reader.readline()


async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    assert await ask(*await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])) == b"HELLO\n"
    path = os.path.join(os.environ["TMPDIR"], "a.sock")
    await asyncio.start_unix_server(answer, path)
    assert await ask(*await asyncio.open_unix_connection(path)) == b"HELLO\n"
    child = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate(b"through a pipe")
    assert out == b"through a pipe" and child.returncode == 0
    got = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(got.wait(), 20)
    assert await asyncio.to_thread(sum, range(10)) == 45
    assert await asyncio.gather(*(asyncio.sleep(0.001, n) for n in range(50))) == list(range(50))


asyncio.run(main())
print("ok")
