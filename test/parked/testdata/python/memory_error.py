try:
    b = bytearray(10**15)
except MemoryError as e:
    print("MemoryError", e)
