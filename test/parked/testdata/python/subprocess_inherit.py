import subprocess, sys
subprocess.run(["sh", "-c", "echo child; ls -l /proc/self/fd | wc -l; cat; echo $PPID >/dev/null"])
print(subprocess.call(["false"]), subprocess.call(["sh", "-c", "kill -9 $$"]))
