import os, signal
got = []
signal.signal(signal.SIGCHLD, lambda *a: got.append(a[0]))
pid = os.fork()
if pid == 0:
    os._exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), got)
