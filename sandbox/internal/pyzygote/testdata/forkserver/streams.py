import sys
for n in ("stdin", "stdout", "stderr"):
    s = getattr(sys, n)
    print(n, repr(s), s.encoding, s.errors, s.line_buffering, s.write_through, s.newlines, s.mode, s.name, s.isatty(), s.seekable(), s.fileno(), s is getattr(sys, "__%s__" % n))
    print(type(s.buffer).__name__, getattr(s.buffer, "raw", s.buffer), s.buffer.name, s.buffer.mode, s.closed)
