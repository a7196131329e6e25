def g():
    try:
        yield 1
    finally:
        print("closed")


x = g()
next(x)
print("end")
