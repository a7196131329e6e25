# env: PYTHONUNBUFFERED=
import os, sys
print("before", flush=True)
pid = os.fork()
print("child" if pid == 0 else "parent: %d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
if pid == 0:
    sys.exit(7)
