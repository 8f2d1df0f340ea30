def one():
    {}["missing"]
def two():
    try:
        one()
    except KeyError as e:
        raise RuntimeError("two failed") from e
try:
    two()
except RuntimeError:
    raise OSError("while handling")
