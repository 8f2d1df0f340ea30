import sys
for s in (sys.stdin, sys.stdout, sys.stderr):
    print(s.encoding, s.errors, s.newlines, s.line_buffering, s.write_through, s.buffer, s.fileno(), s.mode)
