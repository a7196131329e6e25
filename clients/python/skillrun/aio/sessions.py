"""The calls of SessionService for asyncio. skillrun.sessions has the same for threads, and what both share."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, BinaryIO, Callable, List, Mapping, Optional

from skillrun.download import Progress
from skillrun.errors import CallError
from skillrun.inputs import Content, Duration
from skillrun.patience import Patience
from skillrun.sessions import Path, Put, create, get, name_of, resume, update
from skillrun.v1 import session_pb2


class Sessions:
    """The calls of a client for sessions."""

    session_service: Any
    _ask: Any
    _call: Any
    _fetch: Any
    _pages: Any
    _send: Any
    _patience: Patience
    _may_repeat: Callable[[CallError, bool], bool]

    async def create_session(
        self,
        *,
        labels: Optional[Mapping[str, str]] = None,
        idle_ttl: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
        max_bytes: int = 0,
        max_files: int = 0,
    ) -> session_pb2.Session:
        """Makes an empty session, as skillrun.Client.create_session does."""
        request = create(labels, idle_ttl, ttl, max_bytes, max_files)
        session: session_pb2.Session = (await self._ask(self.session_service.CreateSession, request, retry=False)).session
        return session

    async def session(self, session_id: str) -> session_pb2.Session:
        """Returns a session without its files."""
        request = session_pb2.GetSessionRequest(session_id=session_id)
        session: session_pb2.Session = (await self._ask(self.session_service.GetSession, request)).session
        return session

    def sessions(self, labels: Optional[Mapping[str, str]] = None) -> AsyncIterator[session_pb2.Session]:
        """Yields the tenant's sessions that have all of the labels, the oldest first, page by page."""
        request = session_pb2.ListSessionsRequest(labels=labels or {}, page_size=1000)
        found: AsyncIterator[session_pb2.Session] = self._pages(self.session_service.ListSessions, request, lambda page: page.sessions)
        return found

    async def update_session(
        self,
        session_id: str,
        *,
        labels: Optional[Mapping[str, str]] = None,
        idle_ttl: Optional[Duration] = None,
        ttl: Optional[Duration] = None,
    ) -> session_pb2.Session:
        """Changes a session and returns it. None leaves a value as it is; labels replace all labels."""
        request = update(session_id, labels, idle_ttl, ttl)
        session: session_pb2.Session = (await self._ask(self.session_service.UpdateSession, request)).session
        return session

    async def delete_session(self, session_id: str) -> None:
        """Removes a session with all its files. If a program works in it, this raises FailedPrecondition."""
        await self._ask(self.session_service.DeleteSession, session_pb2.DeleteSessionRequest(session_id=session_id), retry=False)

    async def session_versions(self, session_id: str) -> List[session_pb2.SessionVersion]:
        """Returns the versions that the daemon keeps, the newest first."""
        request = session_pb2.ListSessionVersionsRequest(session_id=session_id)
        return list((await self._ask(self.session_service.ListSessionVersions, request)).versions)

    def list_files(self, session_id: str, version: int = 0) -> AsyncIterator[session_pb2.SessionFile]:
        """Yields the files of one version, sorted by path, page by page. version 0 is the newest when the first page
        is read."""
        request = session_pb2.ListSessionFilesRequest(session_id=session_id, version=version, page_size=1000)
        found: AsyncIterator[session_pb2.SessionFile] = self._pages(
            self.session_service.ListSessionFiles, request, lambda page: page.files
        )
        return found

    async def get_file(self, session_id: str, path: Path, to: BinaryIO, version: int = 0) -> session_pb2.SessionFile:
        """Writes a file of a session to a binary file, as skillrun.Client.get_file does."""
        request = get(session_id, path, version)
        progress = Progress(f"session {session_id}: file {name_of(path)!r}")

        def pieces(offset: int) -> Any:
            resume(request, offset, progress.first)
            return self._call(self.session_service.GetSessionFile, request)

        file: session_pb2.SessionFile = await self._fetch(progress, pieces, to)
        return file

    async def put_file(self, session_id: str, path: Path, content: Content, executable: bool = False) -> session_pb2.SessionVersion:
        """Uploads a file to a path in a session, as skillrun.Client.put_file does."""
        put = await asyncio.to_thread(Put, session_id, path, content, executable)
        try:
            while True:
                try:
                    version: session_pb2.SessionVersion = (await self._send(self.session_service.PutSessionFile, put)).version
                    return version
                except CallError as error:
                    if not put.resumes(error, self._may_repeat(error, True)):
                        raise
                    pause = self._patience.pause(put.attempt, None)
                    if pause is None:
                        raise
                await asyncio.sleep(pause)
        finally:
            put.close()
