import traceback, sys
def deep(n):
    if n == 0: raise LookupError("bottom")
    deep(n - 1)
try:
    deep(5)
except LookupError:
    traceback.print_exc()
    for f in traceback.extract_tb(sys.exc_info()[2]):
        print(f.filename, f.lineno, f.name, f.line)
traceback.print_stack()
