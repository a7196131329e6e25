import os, sys, threading


def work():
    pid = os.fork()
    if pid == 0:
        sys.exit(8)  # of a thread that is the only one
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


t = threading.Thread(target=work)
t.start()
t.join()
print("end")
