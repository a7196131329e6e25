import multiprocessing as mp


def f(x):
    return x * x, __name__, mp.parent_process() is not None


if __name__ == "__main__":
    with mp.get_context("spawn").Pool(1) as p:
        print(p.map(f, [1, 2]))
