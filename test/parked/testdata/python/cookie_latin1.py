# -*- coding: latin-1 -*-
print(ascii("größe"))
