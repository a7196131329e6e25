import atexit, multiprocessing, os, signal, sys


def child(barrier):
    barrier.recv()
    print("child ends after main's last line", flush=True)


def daemon():
    signal.pause()


atexit.register(lambda pid=os.getpid(): print("atexit of", "main" if os.getpid() == pid else "child", flush=True))
here, there = multiprocessing.Pipe()
multiprocessing.Process(target=child, args=(there,)).start()
multiprocessing.Process(target=daemon, daemon=True).start()
queue = multiprocessing.Queue()
queue.put("never taken")
manager_free = multiprocessing.Value("i", 1)
print("end", flush=True)
here.send(None)
