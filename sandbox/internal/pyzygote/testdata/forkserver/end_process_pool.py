import concurrent.futures
import sys


def square(x):
    return x * x


def write(name):
    with open(name, "w") as f:
        f.write("by a process of the pool")


def unraisable(u):
    # Python's exit may write to the pool's pipe at the moment at which the pool's thread closes it
    # (concurrent.futures.process._python_exit takes no lock). Python would print that.
    if not isinstance(u.exc_value, OSError):
        sys.__unraisablehook__(u)


if __name__ == "__main__":
    sys.unraisablehook = unraisable
    pool = concurrent.futures.ProcessPoolExecutor(2)
    print(list(pool.map(square, range(5))))
    pool.submit(write, "late.txt")
    print("end", flush=True)
