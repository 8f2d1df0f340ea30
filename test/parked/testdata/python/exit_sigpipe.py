import os, signal
r, w = os.pipe()
os.close(r)
try:
    os.write(w, b"x")
except BrokenPipeError as e:
    print("EPIPE", e.errno)
print(signal.getsignal(signal.SIGPIPE))
