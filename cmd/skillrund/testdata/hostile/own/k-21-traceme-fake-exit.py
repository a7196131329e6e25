import signal
refused("ptrace traceme", 101, 0, 0, 0, 0)
pid = os.fork()
if pid == 0:
    r, e = call(101, 0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGURG)  # stops a traced process, although the signal is ignored
    time.sleep(1.2)
    os._exit(0 if r == -1 and e == errno.EPERM else 1)
# If a parent traces its child and the child stops, a careless wait takes that for its end.
os.kill(os.getpid(), signal.SIGURG)
_, status = os.waitpid(pid, 0)
print("PASS ran to its end" if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0 else "FAIL child %#x" % status)
