import sys
c = sys._getframe().f_code
print(c.co_filename, c.co_name, c.co_flags, c.co_firstlineno, len(c.co_code), c.co_names)
