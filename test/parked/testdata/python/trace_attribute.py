import sys
sys.exitt(3)
