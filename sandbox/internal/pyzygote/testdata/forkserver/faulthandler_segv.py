import ctypes, faulthandler
faulthandler.enable()
print("before")
ctypes.string_at(0)
