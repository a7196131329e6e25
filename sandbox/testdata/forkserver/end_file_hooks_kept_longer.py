# differs: what finalizes is found by what sys.path_hooks refers to
import json, sys
json.JSONEncoder.hooks = sys.path_hooks
json.JSONEncoder.x = open("data", "w")
json.JSONEncoder.x.write("unflushed")
