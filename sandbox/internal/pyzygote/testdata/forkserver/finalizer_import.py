import os
import sys


class C:
    def __del__(self, write=os.write):
        try:
            import colorsys
            write(1, b"imported\n")
        except BaseException as e:
            write(1, ascii(e).encode() + b"\n")


c = C()
sys.keep = C()
