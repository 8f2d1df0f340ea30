import os, stat
for fd in range(3):
    s = os.fstat(fd)
    print(fd, stat.filemode(s.st_mode), os.isatty(fd), stat.S_IFMT(s.st_mode))
print(os.readlink("/proc/self/fd/0"))
