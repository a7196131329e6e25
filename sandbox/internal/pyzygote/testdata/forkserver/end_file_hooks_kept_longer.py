# differs: another reference to sys.path_hooks keeps the Sentinel alive
import json, sys
json.JSONEncoder.hooks = sys.path_hooks
json.JSONEncoder.x = open("data", "w")
json.JSONEncoder.x.write("unflushed")
