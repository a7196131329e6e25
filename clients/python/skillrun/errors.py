"""The exceptions of this package.

There are two kinds. :class:`ProgramError` says that a program failed; only ``check``
raises it. Every other exception says that nothing ran, or that the daemon, the
connection or this side failed. A :class:`CallError` is the answer of the daemon, or of
gRPC, to a call.
"""

from __future__ import annotations

import builtins
import re
from typing import Any, Dict, List, Mapping, Optional, Type

import grpc

from skillrun import details_pb2
from skillrun.v1 import execution_pb2 as pb

# The ErrorInfo domain of the daemon's errors.
DOMAIN = "skillrun"


class SkillrunError(Exception):
    """The base of every exception of this package."""


class CallError(SkillrunError):
    """A call was refused, or its connection broke.

    reason is the daemon's stable name of the cause, such as "SKILL_NOT_FOUND", or empty
    if the daemon did not answer. field is the wrong field of the request. retry_after is
    the number of seconds to wait before a retry. Both may be None.
    """

    def __init__(
        self,
        message: str,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
        reason: str = "",
        field: Optional[str] = None,
        retry_after: Optional[float] = None,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.field = field
        self.retry_after = retry_after
        self.metadata: Dict[str, str] = dict(metadata or {})

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}" if self.reason else self.message


class InvalidRequest(CallError):
    """The request is wrong. field names the wrong field, if it is a single one."""


class NotFound(CallError):
    """The skill, file, execution or artifact does not exist."""


class AlreadyExists(CallError):
    """The idempotency key was used with another request."""


class Denied(CallError):
    """The skill's allowed-tools or the policy does not allow the request. message names the rule."""


class Unauthenticated(CallError):
    """The daemon cannot identify the caller."""


class FailedPrecondition(CallError):
    """The state does not allow the call: a missing interpreter, an ended execution, ..."""


class Unsupported(CallError):
    """The daemon does not support the call."""


class Busy(CallError):
    """The daemon has no room. retry_after says when to try again."""


class Unavailable(CallError):
    """The daemon cannot be reached, or is stopping."""


class DeadlineExceeded(CallError):
    """The caller's deadline, or the daemon's deadline for an upload, has passed."""


class DataLoss(CallError):
    """The bytes do not match their checksum, size or offset."""


class ProgramError(SkillrunError):
    """The program did not succeed: it exited with a code other than 0, a signal or a
    limit ended it, or it was cancelled. outcome has the evidence."""

    def __init__(self, execution_id: str, outcome: pb.ExecutionOutcome) -> None:
        super().__init__(describe(outcome))
        self.execution_id = execution_id
        self.outcome = outcome

    @property
    def exit_code(self) -> Optional[int]:
        """The program's exit code, -N for signal N, 124 if it timed out, None if none ran or the
        daemon did not say."""
        return self.outcome.exit_code if self.outcome.HasField("exit_code") else None


class ExecutionLost(SkillrunError):
    """An accepted execution ended without a result of its program: the sandbox could not
    be made, or the daemon died during the run."""

    def __init__(self, execution_id: str, outcome: pb.ExecutionOutcome) -> None:
        super().__init__(f"execution {execution_id}: {describe(outcome)}")
        self.execution_id = execution_id
        self.outcome = outcome


class InputLost(SkillrunError):
    """The program succeeded, but may not have received all of its standard input: reading
    it failed on this side, or the connection broke before all of it was sent."""


# The exceptions that the published contract of execute_script raises. The builtin ones of the
# same names are their bases, so `except FileNotFoundError` catches them.


class PathSecurityError(InvalidRequest):
    """The script's path leaves the skill."""


class ScriptPermissionError(FailedPrecondition):
    """The script is setuid or setgid."""


class InterpreterNotFoundError(FailedPrecondition):
    """Nothing can run the script."""


class ArgumentSerializationError(InvalidRequest):
    """The arguments cannot become JSON."""


class ArgumentSizeError(InvalidRequest):
    """The arguments have more than 10 MB."""


class FileNotFoundError(NotFound, builtins.FileNotFoundError):
    """The script does not exist."""


class ValueError(InvalidRequest, builtins.ValueError):
    """A value is out of its range. field names it."""


class OSError(FailedPrecondition, builtins.OSError):
    """The script could not start, or was cancelled."""


_PUBLISHED: Dict[str, Type[CallError]] = {
    kind.__name__: kind
    for kind in (
        PathSecurityError,
        ScriptPermissionError,
        InterpreterNotFoundError,
        ArgumentSerializationError,
        ArgumentSizeError,
        FileNotFoundError,
        ValueError,
        OSError,
    )
}

_BY_CODE: Dict[grpc.StatusCode, Type[CallError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.PERMISSION_DENIED: Denied,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNIMPLEMENTED: Unsupported,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Busy,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.DATA_LOSS: DataLoss,
}


# Helps a user without permission to open the socket. listen.unix_group of the daemon's configuration names
# the group.
JOIN_GROUP = " (your user may not open the socket; join its group, by default with sudo usermod -aG skillrun $USER, and log in again)"


def call_error(error: grpc.RpcError) -> CallError:
    """Converts grpcio's exception into one of this package."""
    info, bad, retry = _details(error)
    kind = _BY_CODE.get(error.code(), CallError)
    if kind is Busy and (info is None or info.reason == "MESSAGE_TOO_LARGE"):
        large = _TOO_LARGE.search(error.details() or "")
        if large is not None:
            return message_too_large(int(large.group(1)), int(large.group(2)))
        if info is None:
            kind = CallError  # not from the daemon: gRPC uses the code for other errors too
    if info is not None:
        kind = _PUBLISHED.get(info.metadata.get("error", ""), kind)
    message = error.details() or error.code().name
    if kind is Unavailable and info is None and "permission denied" in message.lower():
        message += JOIN_GROUP
    return kind(
        message,
        code=error.code(),
        reason=info.reason if info is not None else "",
        field=bad.field_violations[0].field if bad is not None and bad.field_violations else None,
        # Not ToTimedelta: it raises for a delay of more than 2.7 million years.
        retry_after=retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9 if retry is not None else None,
        metadata=info.metadata if info is not None else None,
    )


# The error for a request that is too large, from the daemon or, without details, from its
# gRPC library. The error for an answer that is too large for this side begins differently.
_TOO_LARGE = re.compile(r"^grpc: received message larger than max \((\d+) vs\. (\d+)\)")


def message_too_large(size: int, limit: int) -> CallError:
    """Returns the error for a request that is too large, with the remedy."""
    return InvalidRequest(
        f"the request has {size} bytes, the daemon accepts {limit}: pass large data as files or as "
        "standard input of run, which are sent in pieces, or raise message_bytes in the daemon's configuration",
        code=grpc.StatusCode.RESOURCE_EXHAUSTED,
        reason="MESSAGE_TOO_LARGE",
        metadata={"maxMessageBytes": str(limit)},
    )


def broken(error: CallError) -> bool:
    """Reports whether the connection may have caused the error, so that the call can
    succeed on another one. The codes in the list are answers of the daemon."""
    return error.code not in (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.UNAUTHENTICATED,
    )


def outcome_error(execution_id: str, outcome: pb.ExecutionOutcome) -> Optional[SkillrunError]:
    """Returns the exception for an outcome, or None for success."""
    # An exit code that is not set reads as 0. It breaks the protocol, so it is no success.
    if outcome.end == pb.EXECUTION_END_EXITED and outcome.HasField("exit_code") and outcome.exit_code == 0:
        return None
    if outcome.end in (pb.EXECUTION_END_SETUP_FAILED, pb.EXECUTION_END_DAEMON_LOST):
        return ExecutionLost(execution_id, outcome)
    return ProgramError(execution_id, outcome)


def describe(outcome: pb.ExecutionOutcome) -> str:
    """Returns one line that says how an execution ended."""
    evidence = outcome.evidence
    text = end_word(outcome.end)
    if outcome.end == pb.EXECUTION_END_EXITED and not outcome.HasField("exit_code"):
        text = "exited, but the daemon did not say with which exit code"
    elif outcome.end == pb.EXECUTION_END_EXITED:
        text = f"exit status {outcome.exit_code}"
    elif outcome.end == pb.EXECUTION_END_SIGNALED:
        text = f"signal: {outcome.signal}"
    elif outcome.end == pb.EXECUTION_END_TIMED_OUT:
        text = f"timed out: {_DEADLINES.get(evidence.deadline, 'deadline')}"
    elif outcome.end == pb.EXECUTION_END_OOM_KILLED and evidence.oom_scope in _MEMORY_OWNERS:
        text += f": memory of the {_MEMORY_OWNERS[evidence.oom_scope]}"
    elif outcome.end == pb.EXECUTION_END_CANCELLED:
        text = ": ".join(filter(None, [f"cancelled by {evidence.cancelled_by}", evidence.cancel_reason]))
    elif outcome.end == pb.EXECUTION_END_SETUP_FAILED:
        text = f"setup failed: {evidence.setup_step}: {evidence.setup_error}"
    return f"{text}; {outcome.advice}" if outcome.advice else text


def end_word(end: int) -> str:
    """Converts an enum value into words: EXECUTION_END_OOM_KILLED becomes "oom killed". It accepts unknown values."""
    try:
        name: str = pb.ExecutionEnd.Name(end)
    except builtins.ValueError:
        return f"ended in way {end}"
    return name[len("EXECUTION_END_") :].lower().replace("_", " ")


_DEADLINES = {
    pb.EXECUTION_DEADLINE_WALL: "wall time",
    pb.EXECUTION_DEADLINE_CPU: "CPU time",
    pb.EXECUTION_DEADLINE_QUEUE: "waiting for a slot",
}

# Whose memory ran out, if it was not the execution's own.
_MEMORY_OWNERS = {pb.OOM_SCOPE_TENANT: "tenant", pb.OOM_SCOPE_MACHINE: "machine"}

# A larger status is ignored. gRPC limits metadata to 8 KiB by default.
_MOST_DETAILS = 64 << 10


def _details(error: grpc.RpcError):  # type: ignore[no-untyped-def]
    """Returns the ErrorInfo, BadRequest and RetryInfo of an error. A missing one is None."""
    found: List[object] = [None, None, None]
    raw = b""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            raw = value
    if not raw or len(raw) > _MOST_DETAILS:
        return found
    kinds: Any = (details_pb2.ErrorInfo, details_pb2.BadRequest, details_pb2.RetryInfo)
    try:
        for detail in details_pb2.Status.FromString(raw).details:
            for i, kind in enumerate(kinds):
                if detail.type_url == f"type.googleapis.com/google.rpc.{kind.DESCRIPTOR.name}":
                    found[i] = kind.FromString(detail.value)
    except Exception:  # the module of DecodeError depends on the version of protobuf
        return [None, None, None]
    info = found[0]
    if info is not None and getattr(info, "domain") != DOMAIN:
        found[0] = None
    return found
