from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as p:
    print(list(p.map(lambda x: x * x, range(10))))
