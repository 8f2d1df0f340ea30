for line in open("/proc/self/mountinfo"):
    f = line.split()
    print(f[3:6], f[f.index("-") + 1:])
