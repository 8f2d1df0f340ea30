import tokenize, ast
with tokenize.open(__file__) as f:
    print(f.encoding, len(f.read()))
print(ast.dump(ast.parse(open(__file__).read()))[:80])
