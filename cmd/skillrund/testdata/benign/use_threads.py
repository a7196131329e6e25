import concurrent.futures
import queue
import threading
import time

todo, done = queue.Queue(), []
barrier = threading.Barrier(8)
lock = threading.RLock()


def worker():
    barrier.wait()
    while (n := todo.get()) is not None:
        with lock:
            done.append(n)


threads = [threading.Thread(target=worker) for _ in range(8)]
for t in threads:
    t.start()
for n in range(1000):
    todo.put(n)
for _ in threads:
    todo.put(None)
for t in threads:
    t.join()
assert sorted(done) == list(range(1000))
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    assert sum(pool.map(lambda n: n * n, range(100))) == 328350
condition, told = threading.Condition(), []


def wait():
    with condition:
        condition.wait_for(lambda: told)


t = threading.Thread(target=wait)
t.start()
with condition:
    told.append(1)
    condition.notify_all()
t.join()
event = threading.Event()
threading.Timer(0.01, event.set).start()
assert event.wait(20)
local = threading.local()
local.x = 1
threading.stack_size(1 << 20)
time.sleep(0.001)
print("ok")
