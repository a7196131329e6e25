for _ in range(24):
    if os.fork() == 0:
        while True:
            pass
while True:
    pass
