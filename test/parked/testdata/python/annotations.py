x: int = 1
y: "str"
print(__annotations__)
