import gc, sys
print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.callbacks, gc.garbage, gc.get_freeze_count())
print(sys.getrefcount(object()))
