import codecs, json
json.JSONEncoder.x = codecs.open("data", "w", "utf-16")
json.JSONEncoder.x.write("unflushed")
