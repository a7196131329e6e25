import json, os, sqlite3
json.JSONEncoder.d = d = sqlite3.connect("data.db")
print(d.execute("pragma journal_mode=wal").fetchall())
d.execute("create table t(x)")
d.execute("insert into t values(1)")
d.commit()
print(sorted(os.listdir()))
