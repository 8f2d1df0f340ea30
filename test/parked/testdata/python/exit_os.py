import os, sys
sys.stdout.write("written, not flushed")
os._exit(5)
