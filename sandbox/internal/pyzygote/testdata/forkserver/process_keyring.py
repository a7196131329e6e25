import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(250, 0, -3, 0), ctypes.get_errno())
