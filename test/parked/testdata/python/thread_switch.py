import sys
print(sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), sys.getallocatedblocks() > 0)
