import os, signal

def handler(number, frame):
    print("handler", number, frame.f_code.co_name)

signal.signal(signal.SIGUSR1, handler)
os.kill(os.getpid(), signal.SIGUSR1)
print("after")
