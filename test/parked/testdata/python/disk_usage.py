import os
v = os.statvfs("/work")
print(v.f_bsize, v.f_blocks, v.f_bfree, v.f_files, v.f_ffree, v.f_flag)
