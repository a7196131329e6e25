import concurrent.futures


def square(x):
    return x * x


def write(name):
    with open(name, "w") as f:
        f.write("by a process of the pool")


if __name__ == "__main__":
    pool = concurrent.futures.ProcessPoolExecutor(2)
    print(list(pool.map(square, range(5))))
    pool.submit(write, "late.txt")
    print("end", flush=True)
