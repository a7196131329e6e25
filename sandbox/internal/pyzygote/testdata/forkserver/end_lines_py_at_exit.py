# streams: lines
# differs: only Py_Finalize calls functions of Py_AtExit
import ctypes
libc = ctypes.CDLL(None)
ctypes.pythonapi.Py_AtExit(ctypes.cast(libc.abort, ctypes.c_void_p))
print("end")
