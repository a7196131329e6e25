# 61,440 bytes without a newline: every byte value but 10, NUL and broken UTF-8 among them.
sys.stdout.buffer.write((bytes(range(10)) + bytes(range(11, 256)) + b"\xff") * 240)
