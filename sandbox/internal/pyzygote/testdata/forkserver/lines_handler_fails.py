# streams: lines
# An exception of a signal handler comes out of a print, though it is an OSError.
import fcntl, os, signal, struct, sys, termios
F_GETPIPE_SZ = 1032


def handle(*_):
    raise OSError(5, "of the handler")


r, w = os.pipe()
signal.signal(signal.SIGALRM, handle)
if os.fork() == 0:
    os.close(w)
    while struct.unpack("i", fcntl.ioctl(r, termios.FIONREAD, bytes(4)))[0] < fcntl.fcntl(r, F_GETPIPE_SZ):
        pass
    os.kill(os.getppid(), signal.SIGALRM)
    while os.read(r, 1 << 20):
        pass
    os._exit(0)
os.dup2(w, 1)
os.close(w)
try:
    print("x" * 999999, flush=True)
except OSError as e:
    sys.stderr.write("%s\n" % e)
