import os, stat
open("f", "w").close(); os.mkdir("d")
print(oct(os.umask(0)), stat.filemode(os.stat("f").st_mode), stat.filemode(os.stat("d").st_mode))
