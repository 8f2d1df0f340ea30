import sys
sys.exit("a reason with ü")
