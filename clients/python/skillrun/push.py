"""The folder of a skill as the messages of PushSkill."""

from __future__ import annotations

import dataclasses
import os
import stat
from typing import Callable, Iterator, List, Optional, Union

from skillrun.inputs import FILE_CHUNK_BYTES, InputError
from skillrun.v1 import skill_pb2

# Called with the bytes that were sent, and with all bytes.
Progress = Callable[[int, int], None]

# Names that are never part of a skill: data of version control, and caches. The daemon would leave them out.
UNPUSHED = frozenset(
    (".git", ".hg", ".svn", ".jj", ".bzr", "CVS", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".DS_Store")
)


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A file, or a link to target."""

    path: str  # relative to the skill, with "/"
    target: str = ""
    size: int = 0
    executable: bool = False


class Push:
    """The messages of one push. error is the exception that ended them early."""

    def __init__(self, folder: Union[str, "os.PathLike[str]"], name: str, source: str, on_progress: Optional[Progress]) -> None:
        self.error: Optional[Exception] = None
        self._folder = os.fspath(folder)
        self._name = name
        self._source = source
        self._on_progress = on_progress
        try:
            self._entries = sorted(self._walk(""), key=lambda e: e.path)
        except OSError as error:
            raise InputError(f"push: {error}") from error
        self._size = sum(e.size for e in self._entries)
        self._sent = 0

    def messages(self) -> Iterator[skill_pb2.PushSkillRequest]:
        """Yields the messages. If a file cannot be read, it sets error and ends; the caller must then cancel the
        call."""
        header = skill_pb2.PushSkillHeader(name=self._name, size_bytes=self._size, source=self._source)
        yield skill_pb2.PushSkillRequest(header=header)
        try:
            for entry in self._entries:
                yield from self._of(entry)
        except OSError as error:
            self.error = InputError(f"push: {error}")
        except Exception as error:  # also of on_progress
            self.error = error

    def _walk(self, folder: str) -> Iterator[_Entry]:
        with os.scandir(os.path.join(self._folder, folder)) as found:
            listed: List["os.DirEntry[str]"] = list(found)
        for item in listed:
            path = f"{folder}/{item.name}" if folder else item.name
            if item.name in UNPUSHED:
                continue
            if item.is_symlink():
                yield _Entry(_text(path), target=_text(os.readlink(item.path)))
            elif item.is_dir(follow_symlinks=False):
                yield from self._walk(path)
            elif item.is_file(follow_symlinks=False):
                status = item.stat(follow_symlinks=False)
                yield _Entry(_text(path), size=status.st_size, executable=status.st_mode & 0o111 != 0)
            else:
                raise InputError(f"push: {path}: is neither a file nor a link")

    def _of(self, entry: _Entry) -> Iterator[skill_pb2.PushSkillRequest]:
        first = skill_pb2.PushSkillEntry(
            path=entry.path, executable=entry.executable, size_bytes=entry.size, link_target=entry.target
        )
        if entry.target:
            yield skill_pb2.PushSkillRequest(entry=first)
            return
        with open(entry.path, "rb", opener=self._open) as file:
            left = entry.size
            while True:
                data = file.read(min(left, FILE_CHUNK_BYTES))
                if left > 0 and not data:
                    raise InputError(f"push: {entry.path}: it became shorter than {entry.size} bytes during the read")
                if left == entry.size:
                    first.data = data
                    yield skill_pb2.PushSkillRequest(entry=first)
                else:
                    yield skill_pb2.PushSkillRequest(data=data)
                left -= len(data)
                self._sent += len(data)
                if self._on_progress is not None:
                    self._on_progress(self._sent, self._size)
                if left == 0:
                    return

    def _open(self, path: str, flags: int) -> int:
        """Opens a file of the folder that was a regular one when it was listed. It follows no link, also in the place of
        a directory, so no file from elsewhere is sent. It waits for no writer of a pipe."""
        # Windows has neither flag.
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        if os.open not in os.supports_dir_fd:  # Windows
            return _regular(os.open(os.path.join(self._folder, path), flags), path)
        *parents, name = path.split("/")
        at = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for parent in parents:
                inner = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = inner
            return _regular(os.open(name, flags, dir_fd=at), path)
        finally:
            os.close(at)


def _regular(descriptor: int, path: str) -> int:
    """Returns a descriptor of a regular file, and closes any other."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"push: {path}: is not a regular file any longer")
    return descriptor


def _text(path: str) -> str:
    """Returns a path that is UTF-8, as the contract wants it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InputError(f"push: {path!a}: the name is not UTF-8; rename it") from None
    return path.replace(os.sep, "/")
