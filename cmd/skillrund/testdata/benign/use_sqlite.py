import sqlite3
import threading

db = sqlite3.connect("notes.db")
assert db.execute("pragma journal_mode = wal").fetchone() == ("wal",)
db.execute("pragma mmap_size = 1048576")
db.execute("create table notes (id integer primary key, text text)")
db.commit()


def insert(n):
    own = sqlite3.connect("notes.db", timeout=20)
    with own:
        own.executemany("insert into notes (text) values (?)", [("%d-%d" % (n, i),) for i in range(50)])
    own.close()


threads = [threading.Thread(target=insert, args=(n,)) for n in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert db.execute("select count(*) from notes").fetchone() == (200,)
db.execute("create virtual table search using fts5(text)")
db.execute("vacuum")
db.execute("pragma wal_checkpoint(truncate)")
db.execute("pragma journal_mode = delete")
db.close()
print("ok")
