"""The stream between a child and the daemon. It carries lines of JSON to the daemon and one
command line to the child."""

import json
import os
import struct

MAX_COMMAND = 16 << 20  # of a command line with its environment


def _refuse(name):
    raise ValueError(name)


_decoder = json.JSONDecoder(parse_constant=_refuse)  # NaN and Infinity are no JSON


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


def parse(data):
    """The JSON object in a packet or a frame. ValueError if it is anything else."""
    try:
        value = _decoder.decode(data.decode())
    except RecursionError as e:
        raise ValueError("nested too deep") from e
    if type(value) is not dict:
        raise ValueError("no object")
    return value


def read_command(barrier):
    """The command line, with the types that become.py expects. No text has a NUL, which would
    end it early in the kernel."""
    (length,) = struct.unpack("<I", read_full(barrier, 4))
    if length > MAX_COMMAND:
        raise ValueError("command of %d bytes" % length)
    command = parse(read_full(barrier, length))
    argv, env = command["argv"], command["env"]
    if type(argv) is not list or not argv or type(env) is not dict:
        raise ValueError("command without words or environment")
    places = command["dir"], command.get("venv", ""), command.get("base", "")
    if any(type(text) is not str or "\0" in text for text in (*places, *argv, *env, *env.values())):
        raise ValueError("command with other things than texts")
    return command
