f = open("/proc/self/stat").read().rsplit(")", 1)
g = f[1].split()
print(f[0], "state", g[0], "ppid", g[1], "pgrp", g[2], "session", g[3], "tty", g[4], "tpgid", g[5], "priority", g[15], "nice", g[16], "threads", g[17], "exit_signal", g[35], "policy", g[38])
