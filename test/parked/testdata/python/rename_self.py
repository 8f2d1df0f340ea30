import os
os.rename(__file__, "other.py")
print(os.listdir("."), __file__)
import other2
