# stdin: a\nb\nc
import sys
for i, line in enumerate(sys.stdin):
    print(i, repr(line))
