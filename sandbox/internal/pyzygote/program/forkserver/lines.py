"""Standard streams that pass on whole lines.

With PYTHONUNBUFFERED=1 Python passes on each write, and one print is a write for each
argument and one for the end of the line. A reader needs whole lines, and a prompt before
the program waits for the answer. These streams pass on exactly that: at the end of a
line, before standard input is read, and at the end of the program, as Python's streams do on
a terminal.
"""

import io
import sys


class Output(io.BufferedWriter):
    def write(self, data):
        count = super().write(data)
        if type(data) is not bytes or b"\n" in data:
            super().flush()
        return count


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
    """Replaces the standard streams of a child, if they are unbuffered."""
    if not sys.stdout.write_through:
        return
    raws = Input(0, "rb", closefd=False), io.FileIO(1, "wb", closefd=False), io.FileIO(2, "wb", closefd=False)
    for raw, name in zip(raws, ("stdin", "stdout", "stderr")):
        raw.name = "<%s>" % name
        old, writes = getattr(sys, name), raw.writable()
        stream = io.TextIOWrapper(Output(raw) if writes else io.BufferedReader(raw), old.encoding, old.errors, "\n", writes)
        stream.mode = old.mode
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)
