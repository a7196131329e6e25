import json
json.x = open("data", "w")
json.x.write("unflushed")
