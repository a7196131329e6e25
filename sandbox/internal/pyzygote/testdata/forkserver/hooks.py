import sys, threading
print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.unraisablehook is sys.__unraisablehook__, sys.breakpointhook is sys.__breakpointhook__)
print(sys.gettrace(), sys.getprofile(), sys.exc_info(), hasattr(sys, "last_type"), hasattr(sys, "last_exc"), threading.gettrace() if hasattr(threading, "gettrace") else None)
