import atexit
for i in range(3):
    atexit.register(print, "atexit", i)
print(atexit._ncallbacks() - 3 >= 0, "end")
