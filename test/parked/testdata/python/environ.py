import os
for k in sorted(os.environ): print(k, "=", os.environ[k])
print(os.environb.keys() == {os.fsencode(k) for k in os.environ})
