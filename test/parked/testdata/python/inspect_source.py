import inspect
def f(a, b=2):
    """Doc."""
    return a + b  # a comment
class C:
    def m(self): pass
print(inspect.getsource(f), inspect.getsource(C))
print(inspect.getsourcefile(f), inspect.getsourcelines(C)[1], inspect.getmodule(f))
