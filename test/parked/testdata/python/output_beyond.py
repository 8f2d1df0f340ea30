import sys
for i in range(90000): sys.stdout.write("line of text %d\n" % i)
