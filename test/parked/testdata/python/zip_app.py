import zipfile, sys, subprocess
zipfile.ZipFile("a.zip", "w").writestr("__main__.py", "import sys; print('zipped', sys.argv, __file__)")
sys.stdout.flush()
subprocess.run([sys.executable, "a.zip", "x"])
