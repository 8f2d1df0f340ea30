import main
print(__name__, main.__name__, main.__file__, main.__spec__, main.__cached__)
