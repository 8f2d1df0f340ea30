def outer(n):
    return inner(n) + 1

def inner(n):
    raise ValueError(f"bad {n}")

outer(3)
