open(__file__, "w").write("# another\n" * 30)
def f():
    raise ValueError("the new source shows")
f()
