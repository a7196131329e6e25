import struct
import zlib


class Canvas:
    def __init__(self, width, height):
        self.width, self.height = width, height
        self.fill(0, 0, 0)

    def fill(self, *rgb):
        self.rows = [bytes(rgb) * self.width for _ in range(self.height)]

    def save(self, path):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        pixels = zlib.compress(b"".join(b"\0" + row for row in self.rows))
        with open(path, "wb") as f:
            f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", self.width, self.height, 8, 2, 0, 0, 0)))
            f.write(chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
