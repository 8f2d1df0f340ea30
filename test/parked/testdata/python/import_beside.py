open("beside.py", "w").write("value = 5\nprint(__file__, __spec__)\n")
import beside
print(beside.value)
import os
print(sorted(os.listdir(".")))
