import ctypes, os
called = ctypes.CFUNCTYPE(None)(lambda write=os.write: write(1, b"never: Python is gone by then") and None)
libc = ctypes.CDLL(None)
text = ctypes.create_string_buffer(b"of the C library's exit\n")
libc.fputs.argtypes = ctypes.c_char_p, ctypes.c_void_p
libc.fputs(text, ctypes.c_void_p.in_dll(libc, "stdout"))  # written when exit flushes it
libc.atexit(libc.flockfile and ctypes.cast(libc.getpid, ctypes.c_void_p))
print("end")
