import os, pty, sys
for fd in (0, 1, 2):
    try: print(os.ttyname(fd))
    except OSError as e: print(e.strerror)
try: print(os.open("/dev/tty", os.O_RDWR))
except OSError as e: print(e.strerror)
print(os.ctermid(), os.tcgetpgrp.__name__)
