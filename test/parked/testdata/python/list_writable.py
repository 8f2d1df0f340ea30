import os
for d in ("/tmp", "/var/tmp", "/run", "/dev/shm", "/home", "/work"):
    for at, dirs, files in os.walk(d): print(at, sorted(dirs), sorted(files))
