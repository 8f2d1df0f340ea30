breakpoint()
print("after")
