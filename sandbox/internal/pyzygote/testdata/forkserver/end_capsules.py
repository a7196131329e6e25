# order: none
import os


class Last:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(2, b"gone: %s\n" % self.name.encode())


import array, ctypes, json, mmap
callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1)
json.callback = ctypes.CFUNCTYPE(ctypes.c_int)(lambda last=Last("of a callback"): 2)
print(callback() + json.callback())


class Structure(ctypes.Structure):
    _fields_ = [("x", ctypes.py_object)]


json.structure = Structure(Last("in a structure"))
json.view = memoryview(bytearray(4))
json.map = mmap.mmap(-1, 4096)
json.map_view = memoryview(json.map)
json.lambda_of_builtin = Last("x").__del__
print("end")
