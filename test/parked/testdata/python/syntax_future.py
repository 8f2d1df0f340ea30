print(1)
from __future__ import annotations
