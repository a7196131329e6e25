import sys
seen = []
sys.addaudithook(lambda e, a: seen.append(e) if e.startswith("cpython") else None)
print(seen)
