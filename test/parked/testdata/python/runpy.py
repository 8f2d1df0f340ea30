import runpy, sys
if __name__ == "__main__":
    print(sorted(k for k in runpy.run_path(__file__, run_name="again") if not k.startswith("__")))
    print(runpy.run_module("main", run_name="more")["__name__"])
else:
    print("run as", __name__, __spec__ is None)
