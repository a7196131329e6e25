# stdin: print("from standard input")\n
import os, atexit
atexit.register(print, "atexit")
os.environ["PYTHONINSPECT"] = "1"
print("main ends")
raise SystemExit(5)
