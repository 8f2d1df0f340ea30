import sys
print(sys.argv, sys.orig_argv)
print(sys.executable, sys.prefix, sys.base_prefix)
