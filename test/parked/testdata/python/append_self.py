with open(__file__, "a") as f: f.write("print('never run')\n")
print("once")
