x32 = 0x40000000
for number in (39, 41, 56, 101, 165, 272, 512, 520, 545, 547):
    refused("x32 %d" % number, x32 | number, 0, 0, 0, 0, 0, 0)
# libc tries new calls and falls back after ENOSYS; a kill would be an outage.
# 335 and 336 are the kernel's trampolines for uprobes. The kernel lets them past every filter.
for number in (387, 400, 480, 511, 548, 600, 1000, 4096, 0x7fffffff, -1):
    refused("unknown %d" % number, number, 0, 0, 0, 0, 0, 0, errors=(errno.ENOSYS,))
r, e = call(39)
print("PASS getpid" if r == os.getpid() else "FAIL getpid %d" % r)
