# -*- coding: utf-8 -*-
print("größe", ascii("größe"))
