import os, posix
print(dict(os.environ))
print(posix.environ)
print(open("/proc/self/environ").read().split("\0"))
print(os.popen("/usr/bin/env | /usr/bin/grep -v ^_=").read())
