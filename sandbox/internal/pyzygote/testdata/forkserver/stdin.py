# stdin: one\ntwo\nthree
import sys
print(repr(sys.stdin.readline()), repr(input("prompt ")), repr(sys.stdin.read()), repr(sys.stdin.read()))
