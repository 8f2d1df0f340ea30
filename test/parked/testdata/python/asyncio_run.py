import asyncio
async def main():
    p = await asyncio.create_subprocess_exec("echo", "child", stdout=-1)
    print(await p.communicate(), asyncio.get_running_loop().__class__.__name__)
    r = await asyncio.gather(asyncio.sleep(0.001, 1), asyncio.sleep(0, 2))
    print(r)
asyncio.run(main())
