# streams: lines
# A signal comes while the pipe is full. Then write(2) returns less than all.
import array, fcntl, os, signal, struct, sys, termios
F_GETPIPE_SZ = 1032
signal.signal(signal.SIGALRM, lambda *_: None)


def interrupt(write):
    r, w = os.pipe()
    if os.fork() == 0:
        os.close(w)
        while struct.unpack("i", fcntl.ioctl(r, termios.FIONREAD, bytes(4)))[0] < fcntl.fcntl(r, F_GETPIPE_SZ):
            pass
        os.kill(os.getppid(), signal.SIGALRM)
        with open(r, "rb") as f:
            os.write(2, b"%d bytes came\n" % len(f.read()))
        os._exit(0)
    old = os.dup(1)
    os.dup2(w, 1)
    os.close(w)
    os.close(r)
    written = write()
    sys.stdout.flush()
    os.dup2(old, 1)
    os.wait()
    print("%s written" % written, flush=True)


interrupt(lambda: print("x" * 999999))
interrupt(lambda: sys.stdout.buffer.write(array.array("i", range(999999))))
