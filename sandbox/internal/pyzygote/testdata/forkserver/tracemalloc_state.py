import tracemalloc
print(tracemalloc.is_tracing())
tracemalloc.start()
x = bytes(1000)
print(len(tracemalloc.take_snapshot().statistics("lineno")) > 0)
