import concurrent.futures
import math
import multiprocessing as mp
from multiprocessing import shared_memory


def send(connection, shared, lock):
    with lock:
        shared.value += 1
    connection.send("from a child")


def main():
    for method in ("fork", "spawn", "forkserver"):
        with mp.get_context(method).Pool(4) as pool:
            assert pool.map(math.sqrt, [n * n for n in range(50)]) == [float(n) for n in range(50)], method
    with concurrent.futures.ProcessPoolExecutor(3) as pool:
        assert list(pool.map(math.factorial, range(6))) == [1, 1, 2, 6, 24, 120]
    ours, theirs = mp.Pipe()
    shared, lock = mp.Value("i", 0), mp.Lock()
    children = [mp.Process(target=send, args=(theirs, shared, lock)) for _ in range(4)]
    for c in children:
        c.start()
    for c in children:
        assert ours.recv() == "from a child"
        c.join()
    assert shared.value == 4 and all(c.exitcode == 0 for c in children)
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    block.buf[:5] = b"hello"
    again = shared_memory.SharedMemory(block.name)
    assert bytes(again.buf[:5]) == b"hello"
    again.close()
    block.close()
    block.unlink()
    with mp.Manager() as manager:
        names = manager.dict(a=1)
        assert names["a"] == 1
    q = mp.Queue()
    q.put([1, 2])
    assert q.get() == [1, 2]
    print("ok")


if __name__ == "__main__":
    main()
