"""Standard streams that pass on whole lines.

With PYTHONUNBUFFERED=1 Python passes on each write, and one print is a write for each
argument and one for the end of the line. A reader needs whole lines, and a prompt before
the program waits for the answer. These streams pass on exactly that: at the end of a
line, before standard input is read, and at the end of the program, as Python's streams do on
a terminal.
"""

import io
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


def use():
    """Changes the standard streams of a child, if they are unbuffered. The text layer keeps the
    pieces of a line; bytes written to sys.stdout.buffer are still passed on at once."""
    if not sys.stdout.write_through:
        return
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=False)
    raw, old = Input(0, "rb", closefd=False), sys.stdin
    raw.name = "<stdin>"
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(raw), old.encoding, old.errors, "\n")
    sys.stdin.mode = "r"
