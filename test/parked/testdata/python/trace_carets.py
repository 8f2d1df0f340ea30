def f(x):
    return (x["a"]["b"]
            + x["c"]["d"])
f({"a": {"b": 1}, "c": None})
