import inspect, sys
print([f.filename for f in inspect.stack()])
f = sys._getframe()
print(f.f_back)
print({k: type(v).__name__ for k, v in globals().items()})
print(__name__, __file__, __doc__, __spec__, __package__, sys.argv, sys.path)
1 / 0
