import tempfile, os
print(tempfile.gettempdir())
with tempfile.TemporaryDirectory() as d: print(os.path.dirname(d), oct(os.stat(d).st_mode))
