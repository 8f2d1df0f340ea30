import threading
go = threading.Event()
def late():
    go.wait()
    print("late", threading.main_thread().is_alive(), threading.current_thread().name)
threading.Thread(target=late).start()
threading._register_atexit(go.set)
print("main ends")
