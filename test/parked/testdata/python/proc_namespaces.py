import os
print(sorted(os.listdir("/proc/self/ns")))
print(os.uname().nodename, os.path.exists("/proc/self/attr/current"))
