import os, fcntl
for fd in range(0, 64):
    try: print(fd, fcntl.fcntl(fd, fcntl.F_GETFD), oct(fcntl.fcntl(fd, fcntl.F_GETFL)))
    except OSError: pass
