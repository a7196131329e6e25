# differs: functions of Py_AtExit are called when an interpreter takes itself apart
import ctypes
libc = ctypes.CDLL(None)
ctypes.pythonapi.Py_AtExit(ctypes.cast(libc.abort, ctypes.c_void_p))
print("end")
