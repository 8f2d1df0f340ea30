print("ok ü €  𝄞")
print("\udcff")
