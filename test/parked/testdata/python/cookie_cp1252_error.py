# coding: cp1252
def f():
    raise ValueError("Ärger €")
f()
