import subprocess
print(subprocess.check_output(["env"], text=True))
