def fünf():
    raise ValueError("größer als ∞")
fünf()
