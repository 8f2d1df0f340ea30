import importlib, sys
print(importlib.util.find_spec("main"))
try: importlib.reload(sys.modules["__main__"])
except Exception as e: print(type(e).__name__, e)
try: print(importlib.util.find_spec("__main__"))
except Exception as e: print(type(e).__name__, e)
