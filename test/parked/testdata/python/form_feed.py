
print("after a form feed")

print("and another")
