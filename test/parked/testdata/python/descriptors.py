import os
for fd in sorted(os.listdir("/proc/self/fd"), key=int):
    try: print(fd, os.readlink("/proc/self/fd/" + fd), open("/proc/self/fdinfo/" + fd).read().split()[:4])
    except OSError as e: print(fd, e.strerror)
