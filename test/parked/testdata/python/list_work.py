import os, stat
print(os.getcwd(), os.listdir("."), os.listdir("/work"))
s = os.stat("/work")
print(stat.filemode(s.st_mode), s.st_uid, s.st_nlink, os.listdir("/tmp"), os.listdir(os.path.expanduser("~")))
