import threading
local = threading.local()
local.x = 1
seen = []
t = threading.Thread(target=lambda: seen.append(hasattr(local, "x")))
t.start()
t.join()
print(seen, local.x)
