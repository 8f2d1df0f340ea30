f = open("made", "w")
f.write("buffered")
import os
print(os.stat("made").st_size)
os.system("cat made; echo .")
