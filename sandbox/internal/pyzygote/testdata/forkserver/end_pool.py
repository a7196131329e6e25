import multiprocessing, multiprocessing.pool, warnings
warnings.simplefilter("always")


def square(x):
    return x * x


if __name__ == "__main__":
    threads = multiprocessing.pool.ThreadPool(2)
    print(threads.map(square, range(5)))
    pool = multiprocessing.Pool(2)
    print(pool.map(square, range(5)))
    print("end")
