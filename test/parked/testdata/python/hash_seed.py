import sys
print(sys.flags.hash_randomization, sys.hash_info, len({hash(s) for s in ("a", "b", "c")}))
print(hash(1), hash(2.5), hash((1, 2)), hash(frozenset([1])))
