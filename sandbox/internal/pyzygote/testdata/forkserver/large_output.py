import sys
for i in range(2000):
    print(i, "x" * 50)
sys.stderr.write("y" * 70000)
