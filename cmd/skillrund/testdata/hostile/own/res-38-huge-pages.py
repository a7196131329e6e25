import mmap
ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
HUGETLB, NORESERVE, MFD_HUGETLB = 0x40000, 0x4000, 4
SYS_MMAP = {"x86_64": 9, "aarch64": 222}[os.uname().machine]
fails("mapping", lambda: mmap.mmap(-1, 2 << 20, flags=ANONYMOUS | NORESERVE | HUGETLB))
fails("mapping of 1 GiB pages", lambda: mmap.mmap(-1, 1 << 30, flags=ANONYMOUS | NORESERVE | HUGETLB | 30 << 26))
fails("file", lambda: os.memfd_create("x", MFD_HUGETLB))
# mmap of 64 bits, of which the kernel reads 32 as flags
refused("flags beyond an int", SYS_MMAP, 0, 2 << 20, 3, 1 << 32 | ANONYMOUS | NORESERVE | HUGETLB, -1, 0)
