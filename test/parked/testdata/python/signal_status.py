for line in open("/proc/self/status"):
    if line.startswith(("Sig", "Shd")):
        print(line, end="")
