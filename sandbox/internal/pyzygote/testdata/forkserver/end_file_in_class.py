import json
json.JSONEncoder.x = open("data", "wb")
json.JSONEncoder.x.write(b"unflushed")
