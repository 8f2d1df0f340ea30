import os, sys
if len(sys.argv) < 3:
    print("round", len(sys.argv), flush=True)
    os.execv(sys.executable, sys.orig_argv[:1] + [__file__] + sys.argv[1:] + ["x"])
print("done", sys.argv, sys.orig_argv)
