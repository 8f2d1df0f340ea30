import os
os.remove(__file__)
def f():
    raise ValueError("no source any more")
f()
