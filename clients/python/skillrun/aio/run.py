"""A run that is followed with asyncio. The exceptions and the guarantees are those of skillrun.run."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, AsyncIterable, AsyncIterator, Callable, Dict, Iterator, List, Optional, Union

from skillrun import inputs
from skillrun.aio.channel import Events, Stream
from skillrun.errors import CallError, SkillrunError, broken, outcome_error
from skillrun.run import CANCEL_SECONDS, Chunk, Result, State
from skillrun.v1 import execution_pb2 as pb

if TYPE_CHECKING:
    from skillrun.aio.client import Client

# The types of standard input: as for skillrun.run, and each asynchronous iterable of bytes.
Stdin = Union[inputs.Stdin, AsyncIterable[bytes]]


class Pipe:
    """Standard input that is written while the program runs, from the client's event loop::

        pipe = aio.Pipe()
        async with await client.run_code("calculator", CODE, stdin=pipe) as run:
            async for chunk in run:
                pipe.write(b"answer\\n")

    A Pipe can be used for one run only.
    """

    def __init__(self) -> None:
        self._waiting: "asyncio.Queue[Optional[bytes]]" = asyncio.Queue()

    def write(self, data: bytes) -> None:
        """Sends data. It does not wait until the program reads the data."""
        if data:
            self._waiting.put_nowait(bytes(data))

    def close(self) -> None:
        """Ends the program's standard input."""
        self._waiting.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            data = await self._waiting.get()
            if data is None:
                return
            yield data


def _more(source: Iterator[Any]) -> Any:
    """Returns the next item, or None at the end. A thread cannot raise StopIteration into a task."""
    return next(source, None)


def in_own_thread(function: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
    """Calls a function that may block for ever. Unlike asyncio.to_thread, it takes no thread of the event loop's
    executor, which other calls need and for which asyncio.run waits at its end."""
    loop = asyncio.get_running_loop()
    future: "asyncio.Future[Any]" = loop.create_future()

    def settle(result: Any, error: Optional[BaseException]) -> None:
        if future.done():
            return  # cancelled
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    def call() -> None:
        result, error = None, None
        try:
            result = function(*args)
        except BaseException as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=contextvars.copy_context().run, args=(call,), daemon=True).start()
    return future


async def _pieces(stdin: Stdin) -> AsyncIterator[bytes]:
    """Yields standard input as it arrives. A source that may block is read in a thread."""
    if isinstance(stdin, AsyncIterable):
        async for data in stdin:
            for piece in inputs.stdin_pieces([data]):
                yield piece
        return
    source = inputs.stdin_pieces(stdin)
    if isinstance(stdin, (bytes, bytearray, str)):
        for piece in source:
            yield piece
        return
    while True:
        more = await in_own_thread(_more, source)
        if more is None:
            return
        yield more


class Sender:
    """The sending side of ExecuteInteractive. A task of gRPC iterates over its messages."""

    def __init__(self, request: pb.ExecuteRequest, uploads: List[inputs.Upload], stdin: Optional[Stdin]) -> None:
        self._request = request
        self._uploads = uploads
        self._stdin = stdin
        self._stream: Optional[Stream] = None
        self.file_error: Optional[Exception] = None
        self.stdin_error: Optional[Exception] = None
        self.done = False  # everything was sent

    def started(self, stream: Stream) -> None:
        """Sets the call that this sender feeds, so that the sender can cancel it. The task of gRPC
        runs only after this, since nothing is awaited before."""
        self._stream = stream

    async def messages(self) -> AsyncIterator[pb.ExecuteInteractiveRequest]:
        yield pb.ExecuteInteractiveRequest(start=self._request)
        try:
            for upload in self._uploads:
                chunks = upload.chunks()
                while True:
                    chunk = await asyncio.to_thread(_more, chunks)
                    if chunk is None:
                        break
                    yield pb.ExecuteInteractiveRequest(file_chunk=chunk)
        except Exception as error:
            self.file_error = error
            if self._stream is not None:
                self._stream.cancel()
            return
        if self._stdin is not None:
            try:
                async for piece in _pieces(self._stdin):
                    yield pb.ExecuteInteractiveRequest(stdin=piece)
            except Exception as error:
                self.stdin_error = error
            yield pb.ExecuteInteractiveRequest(close_stdin=pb.CloseStdin())
        self.done = True


class Run(State):
    """An execution that the client follows. Iterating yields the program's output, each byte
    once and in order, even if the connection breaks. The loop ends when the execution has
    ended; ``outcome`` then says how.

    A run that ``Client.run`` started belongs to the caller: leaving the ``async with`` block
    before its end cancels the execution, and so do ``close`` and the cancellation of the task
    that iterates. After ``detach`` it goes on. A run from ``Client.attach`` is never cancelled by
    leaving. Only one task may iterate.
    """

    def __init__(
        self,
        client: "Client",
        execution_id: str,
        events: Optional[Events] = None,
        after_sequence: int = 0,
        owned: bool = False,
        deadline: Optional[float] = None,
        sender: Optional[Sender] = None,
        uploads: Optional[List[inputs.Upload]] = None,
    ) -> None:
        super().__init__(execution_id, after_sequence)
        self._client = client
        self._events = events
        self._owned = owned
        self._deadline = deadline
        self._sender = sender
        self._uploads = uploads or []
        self._breaks = 0
        self._attempt = 0
        self._left = False

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        async for event in self.events():
            chunk = self._chunk(event)
            if chunk is not None:
                yield chunk

    async def events(self) -> AsyncIterator[pb.ExecutionEvent]:
        """Yields every event except keepalives."""
        try:
            while True:
                event = await self._next()
                if event is None:
                    break
                yield event
        finally:
            await self._leave("the caller left")
        self._check_input(self._sender, self._breaks)

    async def result(self) -> Result:
        """Reads to the end and returns the outcome with the output that was not yet read."""
        output: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        async for chunk in self:
            output[chunk.stream].append(chunk.data)
        return Result(self.id, b"".join(output["stdout"]), b"".join(output["stderr"]), self._ended())

    async def wait(self) -> pb.ExecutionOutcome:
        """Reads to the end, drops the output, and returns the outcome."""
        async for _ in self.events():
            pass
        return self._ended()

    async def check(self) -> "Run":
        """Waits for the end like wait. If the program did not succeed, it raises
        ProgramError or ExecutionLost."""
        error = outcome_error(self.id, await self.wait())
        if error is not None:
            raise error
        return self

    async def cancel(self, grace: Optional[inputs.Duration] = None, reason: str = "") -> None:
        """Ends the execution and returns when it has ended. Its output can still be read."""
        await self._client.cancel(self.id, grace, reason)

    async def signal(self, name: str) -> None:
        """Sends a signal, such as "SIGUSR1", to the program's main process."""
        await self._client.signal(self.id, name)

    async def artifacts(self) -> List[pb.Artifact]:
        """Returns the artifacts. The execution must have ended."""
        return [artifact async for artifact in self._client.artifacts(self.id)]

    async def detach(self) -> str:
        """Stops following without cancelling, and returns the id for Client.attach."""
        if any(u.size for u in self._uploads):
            # The program starts only when the last piece of a streamed file has arrived.
            while not self._started and await self._next() is not None:
                pass
        self._owned = False
        self._stop()
        return self.id

    async def close(self) -> None:
        """Stops following. A run that belongs to the caller is cancelled if it has not ended."""
        await self._leave("closed")
        self._stop()

    async def __aenter__(self) -> "Run":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_owned", False) and self.outcome is None and not self._left:
            warnings.warn(f"run {self.id} was neither read to its end nor closed", ResourceWarning)

    async def _leave(self, reason: str) -> None:
        """Cancels an execution whose caller no longer waits for it."""
        if self._left or self.outcome is not None or not self._owned:
            return
        self._stop()
        try:
            ended = await self._client.cancel(self.id, None, reason, timeout=CANCEL_SECONDS)
            if ended.HasField("outcome"):
                self.outcome = ended.outcome
        except SkillrunError:
            pass  # the daemon cannot be reached

    def _stop(self) -> None:
        self._left = True
        if self._events is not None:
            self._events.cancel()
        inputs.close(self._uploads)

    async def _next(self) -> Optional[pb.ExecutionEvent]:
        """Returns the next event, each once and in order, even if the stream breaks; None after the
        last one."""
        if self._events is None:
            self._events = self._client._attach_stream(self.id, self.last_sequence, self._deadline)
        while not self._left and self.outcome is None:
            try:
                event = await self._events.next()
                if event is None:
                    self._no_event(await self._client.execution(self.id))
                    break
                fresh = self._take(event)
            except CallError as cause:
                if self._left:
                    break
                await self._again(cause)
                continue
            self._attempt = 0
            if self.outcome is not None:
                inputs.close(self._uploads)
            if fresh is not None:
                return fresh
        return None

    async def _again(self, cause: CallError) -> None:
        """Attaches after the last event, or raises the error that broke the stream."""
        self._breaks += 1
        self._attempt += 1
        late = self._deadline is not None and time.monotonic() >= self._deadline
        pause = self._client._patience.pause(self._attempt, self._deadline)
        if late or not broken(cause) or pause is None:
            raise cause
        await asyncio.sleep(pause)
        self._events = self._client._attach_stream(self.id, self.last_sequence, self._deadline)
