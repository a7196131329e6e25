for what, flags in (("plain", 0), ("user mode only", 1), ("close on exec", 0o2000000), ("user mode only, non-blocking", 1 | 0o4000), ("high bits", (1 << 32) | 1)):
    refused("userfaultfd " + what, 323, flags)
fails("/dev/userfaultfd", lambda: os.open("/dev/userfaultfd", os.O_RDWR))
