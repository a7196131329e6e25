n = 0
for n in range(400):
    try:
        pid = os.fork()
    except OSError as e:
        print("FAIL starved by", n, "orphans", e)
        break
    if pid == 0:
        if os.fork() == 0:
            os._exit(0)  # an orphan, now or soon: init must reap it
        os._exit(0)
    os.waitpid(pid, 0)
else:
    print("PASS", n + 1, "orphans were reaped")
