import linecache
# the third line
print(repr(linecache.getline(__file__, 2)), linecache.getlines(__file__))
print(linecache.cache.keys(), linecache.cache[__file__][0])
