import atexit
def bad(): raise ValueError("at exit")
atexit.register(print, "still")
atexit.register(bad)
raise SystemExit(3)
