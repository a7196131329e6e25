"""Standard streams that pass on whole lines.

With PYTHONUNBUFFERED=1 Python passes on each write, and one print is a write for each
argument and one for the end of the line. A reader needs whole lines, and a prompt before
the program waits for the answer. These streams pass on exactly that: at the end of a
line, before standard input is read, and at the end of the program, as Python's streams do on
a terminal, and also before os.fork. They write everything or raise an exception, also if a
signal comes or if the descriptor does not block. Python's own unbuffered streams lose the rest
then, because the text layer ignores how much the raw stream has written.
"""

import io
import os
import sys


class Input(io.FileIO):
    """Standard input. A read passes on the prompt in front of it."""

    def readinto(self, buffer):
        pass_on_prompt()
        return super().readinto(buffer)

    def readall(self):
        pass_on_prompt()
        return super().readall()


def pass_on_prompt():
    try:
        sys.__stdout__.flush()
    except Exception:
        pass  # closed or broken: the program's next write says so


def pass_on_pieces():
    """Passes on the pieces of a line before a fork, so that the new process doesn't have them, too.
    A stream that the program has made to collect blocks keeps them, as in a started Python."""
    for stream in (sys.__stdout__, sys.__stderr__):
        try:
            if stream.line_buffering:
                stream.flush()
        except Exception:
            pass  # none, closed or broken: the program's next write says so


def keep_rest(raw):
    """Makes raw keep what a write can't pass on, as a buffered stream does, and returns the
    buffer. A flush tries again, or raises the exception. So the exception has no frame of this
    file, and Python's last flush finds what an earlier one has kept (exit status 120)."""
    write, rest = raw.write, io.BufferedWriter(io.FileIO(raw.fileno(), "wb", closefd=False))
    waits = False  # whether rest may have bytes

    def write_all(data):
        nonlocal waits
        if waits:
            rest.flush()
            waits = False
        if type(data) is not bytes:
            data = memoryview(data).tobytes()
        left = data
        try:
            written = write(data)
            if written == len(data):
                return written
            while written:  # a signal came, or the descriptor does not block
                left = memoryview(left)[written:]
                if not left:
                    return len(data)
                written = write(left)
        except OSError as e:
            if e.__traceback__.tb_next:
                raise  # it is a signal handler's
        waits = raw.kept = True
        raw.flush = rest.flush
        try:
            rest.write(left)
        except BlockingIOError as e:  # too much to keep
            e.characters_written += len(data) - len(left)
            raise
        return len(data)

    raw.write = write_all  # of the object: its type stays io.FileIO, as in a started Python
    return rest


def use():
    """Changes the standard streams of a child, if they are unbuffered. The text layer keeps the
    pieces of a line; bytes written to sys.stdout.buffer are still passed on at once. Returns
    the files that it has made besides the streams."""
    if not sys.stdout.write_through:
        return []
    rests = []
    for stream in (sys.stdout, sys.stderr):
        rests.append(keep_rest(stream.buffer))
        stream.reconfigure(line_buffering=True, write_through=False)
    os.register_at_fork(before=pass_on_pieces)
    raw, old = Input(0, "rb", closefd=False), sys.stdin
    raw.name = "<stdin>"
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(raw), old.encoding, old.errors, "\n")
    sys.stdin.mode = "r"
    return rests + [rest.raw for rest in rests]
