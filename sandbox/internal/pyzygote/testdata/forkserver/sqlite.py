import sqlite3
d = sqlite3.connect("/tmp/ready.db")
d.execute("create table if not exists t(x)")
print(d.execute("select 1+1").fetchall())
