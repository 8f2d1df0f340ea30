def gen():
    yield 1
    raise ValueError("second")
print(list(gen()))
