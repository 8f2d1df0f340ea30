print(sorted(open("/proc/self/environ", "rb").read().split(b"\0")))
