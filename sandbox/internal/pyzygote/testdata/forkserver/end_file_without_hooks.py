import json, sys
sys.path_hooks = sys.path_hooks[:]
json.JSONEncoder.x = open("data", "w")
json.JSONEncoder.x.write("unflushed")
print(type(sys.path_hooks).__name__)
