from __future__ import annotations
x: undefined = 1
print(__annotations__)
