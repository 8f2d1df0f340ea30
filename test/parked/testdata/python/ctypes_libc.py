import ctypes
c = ctypes.CDLL(None)
print(c.getpagesize(), c.prctl(3), c.prctl(39), c.getpid() > 0, c.prctl(2, ctypes.byref(x := ctypes.c_int())), x.value)
