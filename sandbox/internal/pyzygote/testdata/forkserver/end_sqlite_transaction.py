import json, os, sqlite3
json.JSONEncoder.d = d = sqlite3.connect("data.db")
d.execute("create table t(x)")
d.execute("insert into t values(1)")
print(sorted(os.listdir()))
