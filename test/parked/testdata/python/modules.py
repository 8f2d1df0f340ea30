import sys
print(sorted(sys.modules))
print(sys.modules["__main__"])
