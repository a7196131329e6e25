# args: a -b --c=d -c x
import sys
print(sys.argv, getattr(sys, "orig_argv", None)[1:])
