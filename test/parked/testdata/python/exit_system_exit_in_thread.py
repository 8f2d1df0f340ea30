import sys, threading
def end(): sys.exit(9)
t = threading.Thread(target=end)
t.start(); t.join()
print("on")
