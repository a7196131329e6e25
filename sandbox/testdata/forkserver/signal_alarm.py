import signal

class Late(Exception):
    pass

def handler(number, frame):
    raise Late("alarm")

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
