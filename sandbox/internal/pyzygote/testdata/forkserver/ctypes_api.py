import ctypes
print(ctypes.pythonapi.Py_IsInitialized(), ctypes.get_errno())
