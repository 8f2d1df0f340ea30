try:
    print(repr(input("ask: ")))
except EOFError as e:
    print("EOF", e)
