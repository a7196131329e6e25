import os, sys
sys.stdout.write("1")
os.write(1, b"2")
sys.stderr.write("e1")
os.write(2, b"e2")
print("3")
sys.stdout.buffer.write(b"4\xff")
os.write(1, b"5\n")
