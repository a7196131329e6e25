import os, sys
if len(sys.argv) > 1:
    print("again", sys.argv[1:])
else:
    os.execv(sys.executable, [sys.executable, __file__, "x"])
