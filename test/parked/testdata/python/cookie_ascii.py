# -*- coding: ascii -*-
print("größe")
