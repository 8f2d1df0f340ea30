print(__name__, __file__, __spec__, __loader__, __package__, __doc__, __builtins__)
print(sorted(globals()))
print(sorted(vars()))
