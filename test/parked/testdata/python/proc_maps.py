names = []
for line in open("/proc/self/maps"):
    f = line.split(None, 5)
    if len(f) == 6 and f[5].strip() not in names: names.append(f[5].strip())
print(sorted(names))
