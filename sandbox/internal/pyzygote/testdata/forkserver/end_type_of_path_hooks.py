# differs: sys.path_hooks is a Sentinel, whose deletion starts the fast exit
import copy, pickle, sys
print(type(sys.path_hooks), sys.path_hooks == list(sys.path_hooks), len(sys.path_hooks))
print([type(v).__name__ for n, v in sorted(vars(sys).items()) if isinstance(v, (list, dict)) and type(v).__module__ != "builtins"])
print(type(copy.copy(sys.path_hooks)).__name__)
