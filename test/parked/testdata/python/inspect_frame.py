import inspect, sys
f = inspect.currentframe()
print(f.f_code.co_filename, f.f_lineno, f.f_code.co_name, f.f_code.co_firstlineno, f.f_back)
print(inspect.getframeinfo(f))
print(inspect.getsource(sys.modules["__main__"]))
