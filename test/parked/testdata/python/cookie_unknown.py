# -*- coding: no-such -*-
print(1)
