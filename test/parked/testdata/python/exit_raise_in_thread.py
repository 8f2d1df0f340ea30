import threading
def fail():
    raise RuntimeError("in a thread")
t = threading.Thread(target=fail, name="worker")
t.start(); t.join()
print("on")
