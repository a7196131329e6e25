import os, random
pid = os.fork()
if pid == 0:
    print("child")
    raise SystemExit(5)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
