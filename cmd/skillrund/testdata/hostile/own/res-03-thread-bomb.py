import threading
stop = threading.Event()
n = 0
try:
    while n < 5000:
        threading.Thread(target=stop.wait, daemon=True).start()
        n += 1
    print("FAIL no limit", n)
except RuntimeError as e:
    print("PASS stopped at", n, e)
sys.stdout.flush()
os._exit(0)
