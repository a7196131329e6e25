import os


class Data:
    def __buffer__(self, flags):
        return memoryview(b"data")

    def __release_buffer__(self, view, write=os.write):
        write(1, b"released\n")


try:
    view = memoryview(Data())  # an object of Python has a buffer since 3.12
    print(bytes(view))
except TypeError as e:
    print(e)
