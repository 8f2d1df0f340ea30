async def f(): pass
f()
print("on")
