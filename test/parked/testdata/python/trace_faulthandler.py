import faulthandler, sys
def a(): b()
def b(): faulthandler.dump_traceback(sys.stderr)
a()
