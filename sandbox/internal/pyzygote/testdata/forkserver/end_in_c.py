import functools
functools.reduce(lambda a, b: exec("import sys; sys.exit(10)"), [1, 2])
