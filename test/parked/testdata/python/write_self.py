import subprocess, sys
open(__file__, "w").write("print('rewritten')\n")
print(subprocess.check_output([sys.executable, __file__]))
