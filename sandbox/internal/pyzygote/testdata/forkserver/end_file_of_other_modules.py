import colorsys, json, sys
sys.modules = dict(sys.modules)
colorsys.x = open("data", "w")
colorsys.x.write("unflushed")
json.JSONEncoder.x = open("more", "w")
json.JSONEncoder.x.write("unflushed")
