"""The inputs of an execution: limits, files, standard input."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import io
import os
import queue
import select
import stat
import threading
from typing import Any, BinaryIO, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from google.protobuf import duration_pb2

from skillrun.errors import SkillrunError
from skillrun.v1 import execution_pb2 as pb

# How many bytes of standard input and files together are part of the request. The rest is
# streamed. The daemon accepts messages of up to 16 MiB by default, but may be configured
# for less.
INLINE_BYTES = 1 << 20

# The maximum standard input of a request with an idempotency key. All of it is part of the
# request, which may have up to 16 MiB.
KEYED_BYTES = 15 << 20

# The size of a piece of an input file, and of one read of standard input.
FILE_CHUNK_BYTES = 256 << 10
STDIN_CHUNK_BYTES = 32 << 10

# A duration: seconds, or a timedelta.
Duration = Union[float, datetime.timedelta]

# A file's content: the bytes, or the path of a local file.
Content = Union[bytes, "os.PathLike[str]"]


class InputError(SkillrunError):
    """A local file or standard input cannot be read or has changed, or the arguments are
    not JSON in UTF-8."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of one execution. None or 0 means the value of the skill, the tenant or the
    daemon. A value above one of their ceilings is refused."""

    wall_time: Optional[Duration] = None  # from the start of the program
    cpu_time: Optional[Duration] = None  # of all processes together
    memory_bytes: int = 0
    processes: int = 0  # and threads at the same time, besides the program itself
    output_bytes: int = 0  # bytes delivered of stdout and of stderr, each
    workspace_bytes: int = 0
    workspace_files: int = 0
    open_files: int = 0
    milli_cpus: int = 0  # thousandths of a processor, for all processes together

    def message(self) -> pb.ExecutionLimits:
        return pb.ExecutionLimits(
            wall_time=duration(self.wall_time),
            cpu_time=duration(self.cpu_time),
            memory_bytes=self.memory_bytes,
            processes=self.processes,
            output_bytes=self.output_bytes,
            workspace_bytes=self.workspace_bytes,
            workspace_files=self.workspace_files,
            open_files=self.open_files,
            milli_cpus=self.milli_cpus,
        )


@dataclasses.dataclass(frozen=True)
class Network:
    """Rules for the destinations that a program may reach. They can only narrow the rules that the
    daemon grants; docs/network.md describes the rules. An empty allow leaves the daemon's rules. With learn
    the program may reach every public address that no deny rule refuses, and the run's learned are the rules that it
    needed. That is for the role admin, and goes without allow."""

    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    learn: bool = False

    def message(self) -> pb.NetworkRules:
        for name in ("allow", "deny"):
            if isinstance(getattr(self, name), (str, bytes)):
                raise TypeError(f"network.{name}: want a list of rules, got one string")
        return pb.NetworkRules(allow=self.allow, deny=self.deny, learn=self.learn)


# For network: the program runs without one, also if its skill asks for one.
NO_NETWORK = Network(allow=("none",))


@dataclasses.dataclass(frozen=True)
class Session:
    """The session in which a program works: it sees the session's files in /workspace, and its
    changes become the next version. The outcome has the result. version 0 is the newest one. With
    wait the run waits for other runs in the session, within queue_timeout. With commit_failed the
    changes are kept even if the program fails or is ended."""

    id: str
    version: int = 0
    wait: bool = False
    commit_failed: bool = False

    def message(self) -> pb.SessionUse:
        return pb.SessionUse(session_id=self.id, version=self.version, wait=self.wait, commit_failed=self.commit_failed)


@dataclasses.dataclass(frozen=True)
class File:
    """An input file, which is put into /workspace. For a file that is not executable, the
    bytes or the path are enough."""

    content: Content
    executable: bool = False


@dataclasses.dataclass(frozen=True)
class Resource:
    """An input file that the daemon copies: a file of a skill (skill://NAME/PATH), or an
    artifact of an earlier execution (Artifact.uri)."""

    uri: str
    executable: bool = False


# The content of an input file.
Input = Union[Content, File, Resource]


class Pipe:
    """Standard input that is written while the program runs::

        pipe = skillrun.Pipe()
        with client.run_code("calculator", CODE, stdin=pipe) as run:
            for chunk in run:
                pipe.write(b"answer\\n")

    Any thread may write. A Pipe can be used for one run only.
    """

    def __init__(self) -> None:
        self._waiting: "queue.Queue[Optional[bytes]]" = queue.Queue()

    def write(self, data: bytes) -> None:
        """Sends data. It does not wait until the program reads the data."""
        if data:
            self._waiting.put(bytes(data))

    def close(self) -> None:
        """Ends the program's standard input."""
        self._waiting.put(None)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._waiting.get, None)


# The types of standard input. Text is sent as UTF-8.
Stdin = Union[bytes, str, BinaryIO, Iterable[bytes]]


def duration(value: Optional[Duration]) -> Optional[duration_pb2.Duration]:
    """Converts a duration; None stays unset. It passes on invalid values, which the daemon
    refuses with a reason."""
    if value is None:
        return None
    if not isinstance(value, datetime.timedelta):
        value = datetime.timedelta(seconds=value)
    message = duration_pb2.Duration()
    message.FromTimedelta(value)
    return message


class Upload:
    """An input file of known size. Its content can be read several times."""

    def __init__(self, path: str, file: Union[File, Resource]) -> None:
        self.path = path
        self.executable = file.executable
        self.uri = ""
        self.size = 0
        self._bytes: Optional[bytes] = None
        self._file: Optional[BinaryIO] = None
        if isinstance(file, Resource):
            self.uri = file.uri
            return
        if isinstance(file.content, (bytes, bytearray)):
            self._bytes = bytes(file.content)
            self.size = len(file.content)
            return
        if isinstance(file.content, str) or not hasattr(file.content, "__fspath__"):
            raise TypeError(f"file {path}: want bytes for content, or a pathlib.Path of a local file")
        try:
            # Checked before the open, which would wait for the writer of a named pipe.
            regular = stat.S_ISREG(os.stat(file.content).st_mode)
            if regular:
                self._file = open(file.content, "rb")
                self.size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise InputError(f"file {path}: {error}") from error
        if not regular:
            raise InputError(f"file {path}: {os.fspath(file.content)}: not a regular file")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def read(self) -> bytes:
        """Returns the whole content."""
        return b"".join(self.pieces())

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()

    def chunks(self) -> Iterator[pb.FileChunk]:
        """Yields the content in pieces. If the file has grown since it was announced, only
        the announced size is sent, and the daemon's checksum shows whether the content has
        changed."""
        at = 0
        for piece in self.pieces():
            yield pb.FileChunk(path=self.path, offset_bytes=at, data=piece)
            at += len(piece)

    def pieces(self, at: int = 0) -> Iterator[bytes]:
        """Yields the content from an offset on."""
        while at < self.size:
            piece = self._at(at, min(FILE_CHUNK_BYTES, self.size - at))
            if not piece:
                raise InputError(f"file {self.path}: it became shorter than {self.size} bytes during the read")
            at += len(piece)
            yield piece

    def _at(self, offset: int, size: int) -> bytes:
        # pread, because an abandoned try may still be reading from the file.
        if self._file is None:
            return (self._bytes or b"")[offset : offset + size]
        try:
            return os.pread(self._file.fileno(), size, offset)
        except (OSError, ValueError) as error:
            raise InputError(f"file {self.path}: {error}") from error


def uploads(files: Optional[Mapping[str, Input]]) -> List[Upload]:
    """Opens the files that a request names. The caller closes them."""
    opened: List[Upload] = []
    try:
        for path, content in (files or {}).items():
            opened.append(Upload(path, content if isinstance(content, (File, Resource)) else File(content)))
    except BaseException:
        close(opened)
        raise
    return opened


def close(opened: Iterable[Upload]) -> None:
    for upload in opened:
        upload.close()


def add_files(request: pb.ExecuteRequest, files: Iterable[Upload], room: int) -> List[Upload]:
    """Puts files into the request as long as there is room. It announces the others, which
    must be streamed, and returns them."""
    streamed = []
    for upload in files:
        entry = request.files.add(path=upload.path, executable=upload.executable)
        if upload.uri:
            entry.uri = upload.uri
        elif upload.size <= room:
            entry.content = upload.read()
            room -= upload.size
        else:
            entry.streamed.size_bytes = upload.size
            entry.streamed.sha256 = upload.sha256()
            streamed.append(upload)
    return streamed


def whole_files(files: Optional[Mapping[str, Input]]) -> List[pb.InputFile]:
    """Returns files that are part of a request as a whole."""
    opened = uploads(files)
    try:
        return [
            pb.InputFile(path=u.path, executable=u.executable, uri=u.uri)
            if u.uri
            else pb.InputFile(path=u.path, executable=u.executable, content=u.read())
            for u in opened
        ]
    finally:
        close(opened)


# Held for a read that does not block. Without it, two runs with the same standard input could both see bytes that
# only one of them gets.
_reading = threading.Lock()


def _waiting_read1(stdin: io.BufferedReader) -> Callable[[int], bytes]:
    """Returns a read1 that first waits for bytes. The read1 of stdin waits while it holds the lock of stdin. A thread
    that holds this lock blocks a close in other threads, and aborts an interpreter that exits."""
    ready = select.poll()
    ready.register(stdin, select.POLLIN)
    raw: Any = stdin.raw
    buffered = True  # the caller may have left bytes in the buffer of stdin

    def read1(size: int) -> bytes:
        nonlocal buffered
        if buffered:
            with _reading:
                # No method reads only the buffer. Until the del, raw seems to be at its end.
                raw.readinto = lambda _: 0
                try:
                    piece = stdin.read1(size)
                finally:
                    del raw.readinto
            if piece:
                return piece
            buffered = False
        while True:
            ready.poll()
            with _reading:
                if ready.poll(0):
                    return stdin.read1(size)

    return read1


def _reads(stdin: Any) -> Iterable[Any]:
    """Returns what a file or another iterable yields."""
    # A raw file of another type, such as a TLS connection, may have bytes while its descriptor has none.
    if isinstance(stdin, io.BufferedReader) and isinstance(stdin.raw, io.FileIO) and hasattr(select, "poll"):
        read: Any = _waiting_read1(stdin)
    else:
        # read1 returns the available bytes at once, which matters if a person types the input.
        read = getattr(stdin, "read1", None) or getattr(stdin, "read", None)
    return stdin if read is None else iter(lambda: read(STDIN_CHUNK_BYTES), b"")


def stdin_pieces(stdin: Stdin) -> Iterator[bytes]:
    """Yields standard input as it arrives."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    if isinstance(stdin, (bytes, bytearray)):
        for at in range(0, len(stdin), STDIN_CHUNK_BYTES):
            yield bytes(stdin[at : at + STDIN_CHUNK_BYTES])
        return
    for piece in _reads(stdin):
        if not isinstance(piece, (bytes, bytearray)):
            raise InputError(f"stdin: want bytes, got {type(piece).__name__}")
        for at in range(0, len(piece), STDIN_CHUNK_BYTES):
            yield bytes(piece[at : at + STDIN_CHUNK_BYTES])


def small_stdin(stdin: Optional[Stdin], keyed: bool) -> Optional[bytes]:
    """Returns standard input that can be part of the request, or None if it must be streamed."""
    if stdin is None:
        return b""
    if keyed:
        data = bytearray()
        for piece in stdin_pieces(stdin):
            data += piece
            if len(data) > KEYED_BYTES:
                raise InputError(f"stdin: an idempotency key needs an input of at most {KEYED_BYTES >> 20} MiB")
        return bytes(data)
    if isinstance(stdin, str):
        stdin = stdin.encode()
    if isinstance(stdin, (bytes, bytearray)) and len(stdin) <= INLINE_BYTES:
        return bytes(stdin)
    return None
