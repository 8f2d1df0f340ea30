import atexit, threading
atexit.register(print, "first registered")
atexit.register(print, "second registered")
threading._register_atexit(print, "threads end")
print("main ends")
