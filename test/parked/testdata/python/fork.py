import os
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(w, f"{os.getpid() > 1} {__file__} {os.getppid() > 1}".encode())
    os._exit(6)
os.close(w)
print(os.read(r, 100), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
