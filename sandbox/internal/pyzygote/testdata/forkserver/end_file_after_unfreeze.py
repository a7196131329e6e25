import gc, json
gc.unfreeze()
f = open("global", "w")
f.write("unflushed")
json.JSONEncoder.f = open("class", "w")
json.JSONEncoder.f.write("unflushed")
