# args: one two
print(open("/proc/self/cmdline").read().split("\0"))
print(open("/proc/self/comm").read())
