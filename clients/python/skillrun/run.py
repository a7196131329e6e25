"""A run: an execution that the daemon has accepted and that the client follows."""

from __future__ import annotations

import codecs
import dataclasses
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Protocol

import grpc

from skillrun import inputs
from skillrun.errors import (
    CallError,
    DataLoss,
    InputLost,
    SkillrunError,
    Unavailable,
    broken,
    call_error,
    end_word,
    outcome_error,
)
from skillrun.v1 import execution_pb2 as pb

if TYPE_CHECKING:
    from skillrun.client import Client

# Limits the wait for the end of an execution that is cancelled because its caller left, in
# seconds. The daemon's default grace is 2 s.
CANCEL_SECONDS = 15.0

_STREAMS: Dict[int, str] = {pb.OUTPUT_STREAM_STDOUT: "stdout", pb.OUTPUT_STREAM_STDERR: "stderr"}


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A piece of the program's output."""

    stream: str  # "stdout" or "stderr"
    data: bytes
    # data decoded as UTF-8, with U+FFFD for invalid bytes. A character that is split
    # between two chunks is part of the second one.
    text: str


@dataclasses.dataclass(frozen=True)
class Result:
    """A run that has ended, with its output."""

    id: str
    stdout: bytes
    stderr: bytes
    outcome: pb.ExecutionOutcome

    @property
    def ok(self) -> bool:
        """Whether the program exited with 0."""
        return outcome_error(self.id, self.outcome) is None

    @property
    def exit_code(self) -> Optional[int]:
        """The program's exit code, -N for signal N, 124 if it timed out. None if no program ran,
        or if the daemon did not say."""
        return self.outcome.exit_code if self.outcome.HasField("exit_code") else None

    @property
    def learned(self) -> Optional[pb.LearnedRules]:
        """The network rules that a program with Network.learn needed; None for other programs."""
        return learned(self.outcome)

    @property
    def text(self) -> str:
        """Standard output decoded as UTF-8, with U+FFFD for invalid bytes."""
        return self.stdout.decode("utf-8", "replace")

    def check(self) -> "Result":
        """Returns self if the program succeeded, else raises ProgramError or ExecutionLost."""
        error = outcome_error(self.id, self.outcome)
        if error is not None:
            raise error
        return self


def learned(outcome: pb.ExecutionOutcome) -> Optional[pb.LearnedRules]:
    return outcome.learned_rules if outcome.HasField("learned_rules") else None


class Sender:
    """The sending side of ExecuteInteractive. A thread of gRPC iterates over its messages."""

    def __init__(self, request: pb.ExecuteRequest, uploads: List[inputs.Upload], stdin: Optional[inputs.Stdin]) -> None:
        self._request = request
        self._uploads = uploads
        self._stdin = stdin
        self._call: Any = None
        self._has_call = threading.Event()
        self.file_error: Optional[Exception] = None
        self.stdin_error: Optional[Exception] = None
        self.done = False  # everything was sent

    def started(self, call: Any) -> None:
        """Sets the call that this sender feeds, so that the sender can cancel it."""
        self._call = call
        self._has_call.set()

    def messages(self) -> Iterator[pb.ExecuteInteractiveRequest]:
        yield pb.ExecuteInteractiveRequest(start=self._request)
        try:
            for upload in self._uploads:
                for chunk in upload.chunks():
                    yield pb.ExecuteInteractiveRequest(file_chunk=chunk)
        except Exception as error:
            self.file_error = error
            self._has_call.wait()
            self._call.cancel()
            return
        if self._stdin is not None:
            try:
                for piece in inputs.stdin_pieces(self._stdin):
                    yield pb.ExecuteInteractiveRequest(stdin=piece)
            except Exception as error:
                self.stdin_error = error
            yield pb.ExecuteInteractiveRequest(close_stdin=pb.CloseStdin())
        self.done = True


class Sending(Protocol):
    """What a Sender, of this module or of skillrun.aio, says of standard input."""

    stdin_error: Optional[Exception]
    done: bool  # everything was sent


class State:
    """What is known of an execution from its events. Run and skillrun.aio.Run receive them."""

    def __init__(self, execution_id: str, after_sequence: int) -> None:
        # Identifies the execution on every connection, as long as the daemon keeps its record.
        self.id = execution_id
        # The accepted request and the effective limits; None until this event was read.
        self.header: Optional[pb.ExecutionHeader] = None
        # How the execution ended, with the evidence; None before its end.
        self.outcome: Optional[pb.ExecutionOutcome] = None
        # The sequence number of the last event that was read, for attach(id, last_sequence).
        self.last_sequence = after_sequence
        # The refusals of the program's network in the events read so far: the first 100
        # refusals. The outcome's evidence counts all.
        self.denied: List[pb.NetworkDenial] = []
        self._started = False
        # Offset of the next byte of each stream; not known after an attach in the middle.
        self._offsets: Dict[int, int] = dict.fromkeys(_STREAMS, 0) if after_sequence == 0 else {}
        self._decoders = {n: codecs.getincrementaldecoder("utf-8")("replace") for n in _STREAMS}

    @property
    def ok(self) -> bool:
        """Whether the run has ended and its program exited with 0."""
        return self.outcome is not None and outcome_error(self.id, self.outcome) is None

    @property
    def exit_code(self) -> Optional[int]:
        """The program's exit code, -N for signal N, 124 if it timed out. None before the end,
        if no program ran, or if the daemon did not say."""
        if self.outcome is None or not self.outcome.HasField("exit_code"):
            return None
        return self.outcome.exit_code

    @property
    def connections(self) -> List[pb.NetworkConnection]:
        """The program's connections: the first 100 that ended. Empty before the end. The
        outcome's usage has the sums of all."""
        return list(self.outcome.usage.network.connections) if self.outcome is not None else []

    @property
    def learned(self) -> Optional[pb.LearnedRules]:
        """The network rules that a program with Network.learn needed; None before the end, and for other
        programs."""
        return learned(self.outcome) if self.outcome is not None else None

    @property
    def end(self) -> str:
        """The kind of end, such as "exited" or "timed out"; empty before the end."""
        return end_word(self.outcome.end) if self.outcome is not None else ""

    def _chunk(self, event: pb.ExecutionEvent) -> Optional[Chunk]:
        """Returns the output in an event, or None."""
        if event.WhichOneof("event") != "output" or event.output.stream not in _STREAMS:
            return None
        number, data = event.output.stream, event.output.data
        return Chunk(_STREAMS[number], data, self._decoders[number].decode(data))

    def _check_input(self, sender: Optional[Sending], breaks: int) -> None:
        """Raises InputLost if a program that succeeded did not get all its input. breaks is how often the stream
        broke."""
        if sender is None or not self.ok:
            return  # a failed program reports missing input itself
        if sender.stdin_error is not None:
            raise InputLost(f"stdin: {sender.stdin_error}") from sender.stdin_error
        if breaks > 0 and not sender.done:
            raise InputLost("stdin: the connection broke before all input was sent")

    def _ended(self) -> pb.ExecutionOutcome:
        if self.outcome is None:
            raise SkillrunError(f"execution {self.id}: the run is no longer followed")
        return self.outcome

    def _no_event(self, known: pb.Execution) -> None:
        """Handles the end of a stream without an outcome. A stream that begins after the last
        event has no events."""
        if not known.HasField("outcome") or known.last_sequence > self.last_sequence:
            raise Unavailable("the stream ended before the execution", grpc.StatusCode.UNAVAILABLE)
        self.outcome = known.outcome

    def _take(self, event: pb.ExecutionEvent) -> Optional[pb.ExecutionEvent]:
        """Checks an event's sequence number and returns the event. For a keepalive, and for
        an event that was seen before, it returns None. A gap is an error, which a new
        stream may repair."""
        kind = event.WhichOneof("event")
        if kind == "queued":
            return event  # not stored: it repeats the last sequence
        if kind == "keepalive" or event.sequence <= self.last_sequence:
            return None
        if event.sequence != self.last_sequence + 1:
            raise Unavailable(
                f"event {event.sequence} follows {self.last_sequence}: events are missing",
                grpc.StatusCode.UNAVAILABLE,
            )
        if kind == "output":
            self._place(event.output)
        elif kind == "header":
            self.header = event.header
        elif kind == "started":
            self._started = True
        elif kind == "denied":
            self.denied.append(event.denied)
        elif kind == "outcome":
            self.outcome = event.outcome
        self.last_sequence = event.sequence
        return event

    def _place(self, output: pb.OutputChunk) -> None:
        want = self._offsets.get(output.stream, output.offset_bytes)
        if output.offset_bytes != want:
            name = _STREAMS.get(output.stream, "output")
            raise DataLoss(
                f"{name}: a chunk at {output.offset_bytes} follows byte {want}", grpc.StatusCode.DATA_LOSS
            )
        self._offsets[output.stream] = want + len(output.data)


class Run(State):
    """An execution that the client follows. Iterating yields the program's output, each
    byte once and in order, even if the connection breaks. The loop ends when the execution
    has ended; ``outcome`` then says how.

    A run that ``Client.run`` started belongs to the caller: leaving the loop or the
    ``with`` block before its end cancels the execution, and so does ``close``. After
    ``detach`` it goes on. A run from ``Client.attach`` is never cancelled by leaving.

    Only one thread may iterate. ``cancel`` and ``signal`` may be called from any thread.
    """

    def __init__(
        self,
        client: "Client",
        execution_id: str,
        stream: Any = None,
        after_sequence: int = 0,
        owned: bool = False,
        deadline: Optional[float] = None,
        sender: Optional[Sender] = None,
        uploads: Optional[List[inputs.Upload]] = None,
    ) -> None:
        super().__init__(execution_id, after_sequence)
        self._client = client
        self._stream = stream
        self._owned = owned
        self._deadline = deadline
        self._sender = sender
        self._uploads = uploads or []
        self._breaks = 0
        self._left = False
        self._following: Optional[Iterator[pb.ExecutionEvent]] = None

    def __iter__(self) -> Iterator[Chunk]:
        for event in self.events():
            chunk = self._chunk(event)
            if chunk is not None:
                yield chunk

    def events(self) -> Iterator[pb.ExecutionEvent]:
        """Yields every event except keepalives."""
        try:
            yield from self._rest()
        finally:
            self._leave("the caller left")
        self._check_input(self._sender, self._breaks)

    def result(self) -> Result:
        """Reads to the end and returns the outcome with the output that was not yet read."""
        output: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        for chunk in self:
            output[chunk.stream].append(chunk.data)
        return Result(self.id, b"".join(output["stdout"]), b"".join(output["stderr"]), self._ended())

    def wait(self) -> pb.ExecutionOutcome:
        """Reads to the end, drops the output, and returns the outcome."""
        for _ in self.events():
            pass
        return self._ended()

    def check(self) -> "Run":
        """Waits for the end like wait. If the program did not succeed, it raises
        ProgramError or ExecutionLost."""
        error = outcome_error(self.id, self.wait())
        if error is not None:
            raise error
        return self

    def cancel(self, grace: Optional[inputs.Duration] = None, reason: str = "") -> None:
        """Ends the execution and returns when it has ended. Its output can still be read."""
        self._client.cancel(self.id, grace, reason)

    def signal(self, name: str) -> None:
        """Sends a signal, such as "SIGUSR1", to the program's main process."""
        self._client.signal(self.id, name)

    def artifacts(self) -> List[pb.Artifact]:
        """Returns the artifacts. The execution must have ended."""
        return list(self._client.artifacts(self.id))

    def detach(self) -> str:
        """Stops following without cancelling, and returns the id for Client.attach."""
        if any(u.size for u in self._uploads):
            # The program starts only when the last piece of a streamed file has arrived.
            for _ in self._rest():
                if self._started:
                    break
        self._owned = False
        self._stop()
        return self.id

    def close(self) -> None:
        """Stops following. A run that belongs to the caller is cancelled if it has not ended."""
        self._leave("closed")
        self._stop()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_owned", False) and self.outcome is None and not self._left:
            warnings.warn(f"run {self.id} was neither read to its end nor closed: cancelling it", ResourceWarning)
            self._left = True
            self._client._cancel_soon(self.id, "abandoned")

    def _leave(self, reason: str) -> None:
        """Cancels an execution whose caller no longer waits for it."""
        if self._left or self.outcome is not None or not self._owned:
            return
        self._stop()
        try:
            ended = self._client.cancel(self.id, None, reason, timeout=CANCEL_SECONDS)
            if ended.HasField("outcome"):
                self.outcome = ended.outcome
        except SkillrunError:
            pass  # the daemon cannot be reached

    def _stop(self) -> None:
        self._left = True
        if self._stream is not None:
            self._stream.cancel()
        inputs.close(self._uploads)

    def _rest(self) -> Iterator[pb.ExecutionEvent]:
        # Created on first use, because a generator that never starts would keep the run alive.
        if self._following is None:
            self._following = self._follow()
        return self._following

    def _follow(self) -> Iterator[pb.ExecutionEvent]:
        """Yields the events, each once and in order, even if the stream breaks."""
        attempt = 0
        if self._stream is None:
            self._stream = self._client._attach_stream(self.id, self.last_sequence, self._deadline)
        while not self._left:
            try:
                event = next(self._stream, None)
                if event is None:
                    self._no_event(self._client._get(self.id))
                fresh = self._take(event) if event is not None else None
            except grpc.RpcError as error:
                cause = call_error(error)
            except CallError as error:
                cause = error
            else:
                attempt = 0
                if fresh is not None:
                    yield fresh
                if self.outcome is not None:
                    inputs.close(self._uploads)
                    return
                continue
            if self._left:
                return
            attempt = self._again(cause, attempt)

    def _again(self, cause: CallError, attempt: int) -> int:
        """Attaches after the last event, or raises the error that broke the stream."""
        self._breaks += 1
        late = self._deadline is not None and time.monotonic() >= self._deadline
        attempt += 1
        if late or not broken(cause) or not self._client._patience.wait(attempt, self._deadline):
            raise cause
        self._stream = self._client._attach_stream(self.id, self.last_sequence, self._deadline)
        return attempt
