def g():
    yield 1
    raise SystemExit(11)


for x in g():
    print(x)
