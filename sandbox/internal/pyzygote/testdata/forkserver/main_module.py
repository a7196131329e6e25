import sys
m = sys.modules["__main__"]
print(m, m.__dict__ is globals(), sorted(vars(m)))
print(m.__builtins__, m.__loader__.__class__, m.__loader__.name, m.__loader__.path)
print(__name__, repr(__doc__), __file__, m.__spec__, m.__package__)
