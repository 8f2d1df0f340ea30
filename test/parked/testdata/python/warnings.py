import warnings
warnings.warn("careful")
warnings.warn("old", DeprecationWarning)
def f(): warnings.warn("inner", RuntimeWarning, stacklevel=2)
f()
print(warnings.filters)
