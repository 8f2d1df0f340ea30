import sys
sys.exit(["a", {"b": 2}])
