# -*- coding: utf-7 -*-
print("+AOQ-")
