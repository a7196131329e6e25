import importlib, json, sys
old = json
importlib.reload(json)
del sys.modules["json"]
import json
print(json is old, json.dumps({"a": 1}))
