# env: PYTHONUNBUFFERED=
import atexit, os, signal, sys
atexit.register(print, "never")
sys.stdout.write("lost")
os.kill(os.getpid(), signal.SIGKILL if len(sys.argv) > 1 else signal.SIGTERM)
signal.pause()
