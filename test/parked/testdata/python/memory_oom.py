print("begins", flush=True)
held = []
while True: held.append(bytearray(8 << 20))
