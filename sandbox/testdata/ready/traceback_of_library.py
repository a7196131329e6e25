import json
json.loads("{")
