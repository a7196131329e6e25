import linecache
print(linecache.getline(__file__, 1), len(linecache.cache) >= 1)
