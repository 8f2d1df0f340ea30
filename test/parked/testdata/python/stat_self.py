import os, stat
s = os.stat(__file__)
print(stat.filemode(s.st_mode), s.st_uid, s.st_gid, s.st_size, s.st_nlink, os.path.isfile(__file__), os.path.islink(__file__), s.st_blksize)
print(os.access(__file__, os.W_OK), os.access(__file__, os.X_OK), os.path.realpath(__file__), s.st_dev == os.stat("/work").st_dev)
