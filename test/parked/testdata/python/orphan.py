import os
if os.fork() == 0:
    if os.fork() == 0:
        import time
        time.sleep(60)
    os._exit(0)
os.wait()
print("ends, and the orphan with it")
