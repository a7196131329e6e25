# The fork server's package and its directory are nowhere that a script looks.
import os
import sys

print(sorted(n for n in sys.modules if "forkserver" in n and not n.startswith("multiprocessing.")))
print(sorted(p for p in sys.path_importer_cache if "forkserver" in p))
print(sys.path, os.environ.get("PYTHONPATH"), "sitecustomize" in sys.modules)
