"""The stream between a child and the daemon. It carries lines of JSON to the daemon and one
command line to the child."""

import json
import os
import struct

MAX_COMMAND = 16 << 20  # of a command line with its environment


class Failed(Exception):
    """The stage of a child that failed, and the errno."""

    def __init__(self, stage, error):
        self.stage, self.errno = stage, getattr(error, "errno", None) or 0


class Barrier:
    """A child's stream to the daemon. It closes before code of the request runs."""

    def __init__(self, fd):
        self.fd = fd

    def say(self, **packet):
        """Sends one line."""
        os.write(self.fd, json.dumps(packet).encode() + b"\n")

    def started(self):
        if self.fd is not None:
            self.say(op="started")
            os.close(self.fd)
            self.fd = None

    def failed(self, error):
        """Reports the error to the daemon; on stderr if the program has started."""
        stage, number = getattr(error, "stage", type(error).__name__), getattr(error, "errno", 0) or 0
        if self.fd is not None:
            self.say(op="failed", stage=stage, errno=number)
        else:
            os.write(2, ("skillrun: %s: %s\n" % (stage, os.strerror(number) if number else error)).encode())


def run_stages(stages):
    for name, function, args in stages:
        try:
            function(*args)
        except Exception as e:
            raise Failed(name, e) from e


def read_full(fd, length):
    data = bytearray()
    while len(data) < length:
        more = os.read(fd, min(length - len(data), 1 << 20))
        if not more:
            os._exit(0)  # the daemon has discarded this child
        data += more
    return bytes(data)


def read_command(barrier):
    (length,) = struct.unpack("<I", read_full(barrier, 4))
    if length > MAX_COMMAND:
        raise ValueError("command of %d bytes" % length)
    return json.loads(read_full(barrier, length))
