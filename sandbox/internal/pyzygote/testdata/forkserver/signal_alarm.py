import signal

class Late(Exception):
    pass

def handler(number, frame):
    signal.setitimer(signal.ITIMER_REAL, 0)
    raise Late("alarm")

signal.signal(signal.SIGALRM, handler)
# Again and again: an alarm just before pause does not end it.
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
signal.pause()
