import multiprocessing as mp


def f(q):
    q.put((mp.current_process().name, __name__))


if __name__ == "__main__":
    mp.set_start_method("fork")
    q = mp.SimpleQueue()
    p = mp.Process(target=f, args=(q,))
    p.start()
    print(q.get(), mp.current_process().name, mp.parent_process())
    p.join()
    print(p.exitcode)
