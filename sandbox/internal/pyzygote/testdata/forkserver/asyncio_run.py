import asyncio


async def main():
    r = await asyncio.gather(*(asyncio.sleep(0, i) for i in range(3)))
    p = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate()
    print(r, out, p.returncode)


asyncio.run(main())
