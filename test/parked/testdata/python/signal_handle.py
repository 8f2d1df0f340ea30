import os, signal
def on(n, frame): print("got", n, frame.f_lineno, frame.f_code.co_filename)
signal.signal(signal.SIGUSR1, on)
os.kill(os.getpid(), signal.SIGUSR1)
print("after")
