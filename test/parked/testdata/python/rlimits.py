import resource
for n in sorted(dir(resource)):
    if n.startswith("RLIMIT_"): print(n, resource.getrlimit(getattr(resource, n)))
