exe = os.readlink("/proc/self/exe")
print("PASS my own interpreter" if exe.startswith("/usr/bin/") else "FAIL /proc/self/exe is " + exe, exe)
for path in ("/proc/self/exe", exe, "/proc/1/exe", "/proc/%d/exe" % os.getppid(), "/usr/bin/bash", "/usr/bin/env"):
    for what, flags in (("write", os.O_WRONLY), ("append", os.O_WRONLY | os.O_APPEND), ("truncate", os.O_WRONLY | os.O_TRUNC)):
        fails("%s %s" % (what, path), lambda: os.open(path, flags))
fails("see init's binary", lambda: os.readlink("/proc/1/exe"))
# The attack of CVE-2019-5736: execute the parent's binary by its link in /proc, keep it
# open, and write to it when no process executes it any longer.
pid = os.fork()
if pid == 0:
    try:
        os.execv("/proc/1/exe", ["x"])
    except OSError:
        os._exit(99)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print("PASS init's binary can't be executed" if code == 99 else "FAIL executed init's binary, %d" % code)
for n in range(3, 256):
    try:
        fd = os.open("/proc/self/fd/%d" % n, os.O_RDWR)
        print("FAIL reopened", n, os.readlink("/proc/self/fd/%d" % fd))
    except OSError:
        pass
