"""The calls of SessionService, and the upload of a file to a session."""

from __future__ import annotations

import os
from typing import Any, BinaryIO, Callable, Iterator, List, Mapping, Optional, Union

from skillrun import inputs
from skillrun.download import Download
from skillrun.errors import CallError
from skillrun.inputs import Content, Duration, InputError
from skillrun.patience import Patience
from skillrun.v1 import session_pb2

# A file of a session: its path, as text or as the bytes of a name that is not UTF-8, or an entry of list_files.
Path = Union[str, bytes, session_pb2.SessionFile]


class Sessions:
    """The calls of a client for sessions."""

    session_service: Any
    _ask: Any
    _call: Any
    _pages: Any
    _send: Any
    _patience: Patience
    _may_repeat: Callable[[CallError, bool], bool]

    def create_session(
        self,
        *,
        labels: Optional[Mapping[str, str]] = None,
        idle_ttl: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
        max_bytes: int = 0,
        max_files: int = 0,
    ) -> session_pb2.Session:
        """Makes an empty session, for ``run(session=skillrun.Session(created.session_id))``. It is removed at the
        time idle_ttl after its last use, and ttl after its creation; None is the daemon's value. max_bytes and
        max_files bound each version; 0 leaves the daemon's bounds. The call is never repeated."""
        request = create(labels, idle_ttl, ttl, max_bytes, max_files)
        session: session_pb2.Session = self._ask(self.session_service.CreateSession, request, retry=False).session
        return session

    def session(self, session_id: str) -> session_pb2.Session:
        """Returns a session without its files."""
        request = session_pb2.GetSessionRequest(session_id=session_id)
        session: session_pb2.Session = self._ask(self.session_service.GetSession, request).session
        return session

    def sessions(self, labels: Optional[Mapping[str, str]] = None) -> Iterator[session_pb2.Session]:
        """Yields the tenant's sessions that have all of the labels, the oldest first, page by page."""
        request = session_pb2.ListSessionsRequest(labels=labels or {}, page_size=1000)
        found: Iterator[session_pb2.Session] = self._pages(self.session_service.ListSessions, request, lambda page: page.sessions)
        return found

    def update_session(
        self,
        session_id: str,
        *,
        labels: Optional[Mapping[str, str]] = None,
        idle_ttl: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
    ) -> session_pb2.Session:
        """Changes a session and returns it. None leaves a value as it is; labels replace all labels."""
        request = update(session_id, labels, idle_ttl, ttl)
        session: session_pb2.Session = self._ask(self.session_service.UpdateSession, request).session
        return session

    def delete_session(self, session_id: str) -> None:
        """Removes a session with all its files. If a program works in it, this raises FailedPrecondition."""
        self._ask(self.session_service.DeleteSession, session_pb2.DeleteSessionRequest(session_id=session_id), retry=False)

    def session_versions(self, session_id: str) -> List[session_pb2.SessionVersion]:
        """Returns the versions that the daemon keeps, the newest first."""
        request = session_pb2.ListSessionVersionsRequest(session_id=session_id)
        return list(self._ask(self.session_service.ListSessionVersions, request).versions)

    def list_files(self, session_id: str, version: int = 0) -> Iterator[session_pb2.SessionFile]:
        """Yields the files of one version, sorted by path, page by page. version 0 is the newest when the first page
        is read."""
        request = session_pb2.ListSessionFilesRequest(session_id=session_id, version=version, page_size=1000)
        found: Iterator[session_pb2.SessionFile] = self._pages(self.session_service.ListSessionFiles, request, lambda page: page.files)
        return found

    def get_file(self, session_id: str, path: Path, to: BinaryIO, version: int = 0) -> session_pb2.SessionFile:
        """Writes a file of a session to a binary file, checks its size and SHA-256, and returns its description.
        version 0 is the newest. If the stream breaks, the download continues in the same version. If the bytes are
        wrong, it raises DataLoss. After any exception the file may have some or all of the bytes."""
        request = get(session_id, path, version)

        def pieces(offset: int) -> Any:
            resume(request, offset, download.first)
            return self._call(self.session_service.GetSessionFile, request)

        download = Download(f"session {session_id}: file {name_of(path)!r}", pieces, self._patience)
        file: session_pb2.SessionFile = download.to(to)
        return file

    def put_file(self, session_id: str, path: Path, content: Content, executable: bool = False) -> session_pb2.SessionVersion:
        """Uploads a file, given as bytes or as the path of a local file, to a path in a session. This makes a
        version, which is returned; if the newest version has the same file, that one is returned. If the stream
        breaks, the upload continues where it broke. If a program works in the session, this raises
        FailedPrecondition."""
        put = Put(session_id, path, content, executable)
        try:
            while True:
                try:
                    version: session_pb2.SessionVersion = self._send(self.session_service.PutSessionFile, put).version
                    return version
                except CallError as error:
                    if not put.resumes(error, self._may_repeat(error, True)) or not self._patience.wait(put.attempt, None):
                        raise
        finally:
            put.close()


class Put:
    """One upload, over all its calls. error is the exception that ended the messages of a call early."""

    def __init__(self, session_id: str, path: Path, content: Content, executable: bool) -> None:
        self.error: Optional[Exception] = None
        self.attempt = 0  # since the last progress; Patience takes it
        self._upload = inputs.Upload(name_of(path), inputs.File(content, executable))
        self._header = session_pb2.PutSessionFileHeader(session_id=session_id, size_bytes=self._upload.size, executable=executable)
        self._reached = 0  # the greatest offset at which a call began
        set_path(self._header, path)
        try:
            self._header.sha256 = self._upload.sha256()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._upload.close()

    def messages(self) -> Iterator[session_pb2.PutSessionFileRequest]:
        """Returns the messages of the next call. If the file cannot be read, they set error and end; the caller
        must then cancel the call."""
        # Copied at once: gRPC may still read the messages of a call that has failed.
        return self._messages(session_pb2.PutSessionFileRequest(header=self._header))

    def _messages(self, first: session_pb2.PutSessionFileRequest) -> Iterator[session_pb2.PutSessionFileRequest]:
        yield first
        try:
            for piece in self._upload.pieces(first.header.offset_bytes):
                yield session_pb2.PutSessionFileRequest(data=piece)
        except InputError as error:
            self.error = error

    def resumes(self, error: CallError, away: bool) -> bool:
        """Reports whether the upload may go on after an error, and sets where. away says that another
        connection or another daemon may take it."""
        size = self._header.size_bytes
        received = error.metadata.get("sizeBytes", "") if error.reason == "OFFSET_PAST_END" else ""
        if received.isdigit() and int(received) < self._header.offset_bytes:
            if int(received) > self._reached:
                self.attempt = 0
            self._reached = self._header.offset_bytes = int(received)
        elif away or error.reason == "UPLOADS_FULL":
            self._header.offset_bytes = size  # asks how much has come
        else:
            return False
        self.attempt += 1
        return self.error is None


def create(
    labels: Optional[Mapping[str, str]], idle_ttl: Optional[Duration], ttl: Optional[Duration], max_bytes: int, max_files: int
) -> session_pb2.CreateSessionRequest:
    return session_pb2.CreateSessionRequest(
        labels=labels or {},
        idle_ttl=inputs.duration(idle_ttl),
        ttl=inputs.duration(ttl),
        max_bytes=max_bytes,
        max_files=max_files,
    )


def update(
    session_id: str, labels: Optional[Mapping[str, str]], idle_ttl: Optional[Duration], ttl: Optional[Duration]
) -> session_pb2.UpdateSessionRequest:
    request = session_pb2.UpdateSessionRequest(
        session_id=session_id, idle_ttl=inputs.duration(idle_ttl), ttl=inputs.duration(ttl)
    )
    if labels is not None:
        request.labels.CopyFrom(session_pb2.SessionLabels(labels=labels))
    return request


def get(session_id: str, path: Path, version: int) -> session_pb2.GetSessionFileRequest:
    request = session_pb2.GetSessionFileRequest(session_id=session_id, version=version)
    set_path(request, path)
    return request


def resume(request: session_pb2.GetSessionFileRequest, offset: int, first: Any) -> None:
    """Sets where a download goes on: in the version that its first message has named."""
    request.offset_bytes = offset
    if first is not None:
        request.version = first.version


def set_path(message: Any, path: Path) -> None:
    if isinstance(path, bytes):
        message.raw_path = path
    elif isinstance(path, str):
        message.path = path
    else:
        message.path, message.raw_path = path.path, path.raw_path


def name_of(path: Path) -> str:
    """Returns the path for people."""
    if isinstance(path, bytes):
        return os.fsdecode(path)
    return path if isinstance(path, str) else path.path
