import dbm.dumb, json
json.JSONEncoder.d = dbm.dumb.open("data", "c")
json.JSONEncoder.d["key"] = "value"
