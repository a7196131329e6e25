"""
>>> 1 + 1
2
>>> 1 / 0
Traceback (most recent call last):
ZeroDivisionError: division by zero
"""
import doctest
print(doctest.testmod())
