"""A docstring."""
import inspect, sys
print(inspect.getsource(sys.modules["__main__"]))
print(__doc__, inspect.getsourcefile(sys.modules["__main__"]))
