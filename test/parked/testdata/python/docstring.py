"""The documentation
of this file."""
print(repr(__doc__))
