import os, signal
print("about to end", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
