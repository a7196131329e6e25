import os, resource
print(os.getuid(), os.geteuid(), os.getgid(), os.getgroups(), os.getresuid(), os.getresgid())
old = os.umask(0)
print(oct(old), os.getcwd(), os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), os.nice(0))
for r in ("NOFILE", "CORE", "STACK", "AS", "NPROC", "CPU", "FSIZE"):
    print(r, resource.getrlimit(getattr(resource, "RLIMIT_" + r)))
