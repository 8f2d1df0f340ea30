open("made", "w").write("x")
print(open("made").read(), open("main.py").readline(), open("../work/main.py", "rb").read(10))
