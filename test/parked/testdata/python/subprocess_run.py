import subprocess, sys
r = subprocess.run([sys.executable, "-c", "import sys; print(sys.argv, sys.stdin.read()); sys.exit(4)"], input="given", text=True, capture_output=True)
print(r.stdout, r.stderr, r.returncode)
