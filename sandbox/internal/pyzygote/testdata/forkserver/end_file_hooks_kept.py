import json, sys
hooks = sys.path_hooks
json.JSONEncoder.x = open("data", "w")
json.JSONEncoder.x.write("unflushed")
