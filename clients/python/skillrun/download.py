"""Downloads files from the daemon in pieces, resumes broken streams, and checks the SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
from typing import Any, BinaryIO, Callable, Iterator, Tuple, Union

import grpc

from skillrun.errors import CallError, DataLoss, SkillrunError, Unavailable, broken, call_error
from skillrun.patience import Patience
from skillrun.v1 import execution_pb2 as pb


class Progress:
    """Checks the received bytes of a file. The first message of a stream has the size and SHA-256
    of the whole file. Download and skillrun.aio receive the messages."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.at = 0  # how many bytes have arrived
        self._sum = hashlib.sha256()
        self.first: Any = None  # the first message of the first stream
        self._head: Any = None

    def take(self, piece: Any, file: BinaryIO) -> None:
        if self.first is None:
            self.first = piece
            # The description of an artifact and of a session's file is a separate message.
            self._head = getattr(piece, "artifact", None) or getattr(piece, "file", None) or piece
        if not piece.data:
            return
        if piece.offset_bytes != self.at:
            raise self._corrupt(f"a piece at {piece.offset_bytes} follows byte {self.at}")
        if self.at + len(piece.data) > self._head.size_bytes:
            raise self._corrupt(f"the file is larger than {self._head.size_bytes} bytes")
        file.write(piece.data)
        self._sum.update(piece.data)
        self.at += len(piece.data)

    def stream_ended(self) -> None:
        """Raises if a stream has ended before the file."""
        if self._head is None or self.at < self._head.size_bytes:
            raise Unavailable(f"{self._what}: the stream ended at byte {self.at}", grpc.StatusCode.UNAVAILABLE)

    def checked(self) -> Any:
        """Returns the first message's description of the whole file, if the SHA-256 is right."""
        if self._sum.hexdigest() != self._head.sha256:
            raise self._corrupt(f"its SHA-256 is {self._sum.hexdigest()}, not {self._head.sha256}")
        return self._head

    def _corrupt(self, why: str) -> CallError:
        return DataLoss(f"{self._what}: {why}", grpc.StatusCode.DATA_LOSS)


class Download(Progress):
    """One download. open begins a stream of pieces at an offset."""

    def __init__(self, what: str, open: Callable[[int], Any], patience: Patience) -> None:
        super().__init__(what)
        self._open = open
        self._patience = patience

    def to(self, file: BinaryIO) -> Any:
        """Writes the content to a file and returns the first message's description of it."""
        attempt = 0
        while True:
            before = self.at
            try:
                self._receive(file)
                break
            except grpc.RpcError as cause:
                error = call_error(cause)
            except Unavailable as cause:
                error = cause
            if self.at > before:
                attempt = 0
            attempt += 1
            if not broken(error) or not self._patience.wait(attempt, None):
                raise error
        return self.checked()

    def content(self) -> bytes:
        """Returns the whole content."""
        buffer = io.BytesIO()
        self.to(buffer)
        return buffer.getvalue()

    def _receive(self, file: BinaryIO) -> None:
        stream = self._open(self.at)
        try:
            for piece in stream:
                self.take(piece, file)
        finally:
            stream.cancel()
        self.stream_ended()


def save(folder: Union[str, "os.PathLike[str]"], artifact: pb.Artifact, fetch: Callable[[BinaryIO], object]) -> str:
    """Calls fetch to write an artifact to its path beneath a folder; see saving."""
    with saving(folder, artifact) as (file, path):
        fetch(file)
    return path


@contextlib.contextmanager
def saving(folder: Union[str, "os.PathLike[str]"], artifact: pb.Artifact) -> Iterator[Tuple[BinaryIO, str]]:
    """Opens a new file for an artifact. It gets the artifact's path beneath the folder at the end of
    the block, and is removed if the block raises. Each component of the path is opened relative
    to a descriptor, and links are not followed."""
    name: bytes = artifact.raw_path or os.fsencode(artifact.path)
    parts = name.split(b"/")
    if b"\0" in name or any(part in (b"", b".", b"..") for part in parts):
        raise SkillrunError(f"artifact {artifact.path!r}: not a path beneath the folder")
    os.makedirs(folder, exist_ok=True)
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            try:
                os.mkdir(part, dir_fd=at)
            except FileExistsError:
                pass
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        part_name = f".skillrun-{secrets.token_hex(8)}".encode()
        mode = 0o777 if artifact.executable else 0o666
        descriptor = os.open(part_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=at)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file, os.path.join(os.fspath(folder), os.fsdecode(name))
            os.replace(part_name, parts[-1], src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            os.unlink(part_name, dir_fd=at)
            raise
    finally:
        os.close(at)
