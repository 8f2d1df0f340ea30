import threading, time
started = threading.Event()
def forever():
    started.set()
    while True: time.sleep(10)
threading.Thread(target=forever, daemon=True).start()
started.wait()
print("ends", threading.active_count(), threading.enumerate())
