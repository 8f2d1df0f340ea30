f = open("/tmp/big", "wb", buffering=0)
try:
    while True: f.write(bytes(4 << 20))
except OSError as e:
    print(e.errno, e.strerror, f.tell() > 50 << 20)
