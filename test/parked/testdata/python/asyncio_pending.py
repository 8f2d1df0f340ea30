import asyncio
async def fails(): raise ValueError("in a task")
async def main():
    t = asyncio.create_task(fails())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del t
asyncio.run(main())
