import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import json, subprocess, warnings
warnings.simplefilter("always")
warnings.filterwarnings("ignore", "subprocess [0-9]+ is still running")
p = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
p.stdin.write(b"not flushed")
json.p = subprocess.Popen(["/bin/true"])
json.p.wait()
json.q = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
json.q.stdin.write("not flushed")
print("end")
