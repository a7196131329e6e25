import sys, threading
t = threading.Thread(target=sys.exit, args=(3,))
t.start()
t.join()
print("on")
