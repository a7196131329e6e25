"""The results of the published tool contracts."""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import json
from typing import Any, Callable, Dict, Generator, List, Optional

import grpc
from google.protobuf import json_format

from skillrun.errors import ArgumentSizeError, CallError, call_error
from skillrun.run import _STREAMS, Chunk
from skillrun.v1 import execution_pb2 as pb
from skillrun.v1 import tool_pb2


@dataclasses.dataclass(frozen=True)
class ScriptExecutionResult:
    """The result of skillkit's ScriptExecutor.execute."""

    exit_code: int  # -N for signal N, 124 for a timeout
    stdout: str
    stderr: str
    execution_time_ms: float
    script_path: str
    signal: Optional[str]
    signal_number: Optional[int]
    timeout: bool
    stdout_truncated: bool
    stderr_truncated: bool
    success: bool
    signaled: bool
    execution_id: str  # id of the execution; empty if nothing ran
    artifacts: List[pb.Artifact]  # files that the script wrote
    warnings: List[str]


@dataclasses.dataclass(frozen=True)
class ExecutionResult:
    """The result of the ScriptExecutor.execute of the Agent Skills guide."""

    success: bool
    exit_code: int  # -1 if the command was refused, could not start, or timed out
    stdout: str
    stderr: str
    execution_time: float  # seconds
    command: str
    error: Optional[str]
    execution_id: str  # id of the execution; empty if nothing ran
    artifacts: List[pb.Artifact]  # files that the command wrote
    warnings: List[str]
    # Of a refused command: why, the rule that it would need, and "working_directory" or "code"
    # if there is another way. Empty if not set.
    reason: str
    missing_rule: str
    instead: str


class PythonText(str):
    """The text of run_python, with the facts that the text does not have."""

    execution_id: str  # empty if nothing ran
    artifacts: List[pb.Artifact]
    warnings: List[str]


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function tool for a model."""

    name: str
    description: str
    parameters: Dict[str, Any]  # JSON Schema of the arguments
    # {"type": "function", "function": {...}}, as platforms expect it.
    definition: Dict[str, Any]


@dataclasses.dataclass(frozen=True)
class ToolResult:
    """The result of a tool call for a model."""

    content: str  # the text form of the tool's contract
    structured: Optional[Dict[str, Any]]  # the same as an object, if the contract has an object form
    is_error: bool
    execution_id: str  # empty if nothing ran
    artifacts: List[pb.Artifact]
    warnings: List[str]


# The contract's limit on the arguments of execute_script, in bytes.
MAX_ARGUMENT_BYTES = 10_000_000


def script_arguments(text: str) -> str:
    """Returns the arguments of execute_script. If they are too large, it raises the error
    that the daemon would answer, because the daemon may not read such a large message."""
    size = len(text.encode())
    if size > MAX_ARGUMENT_BYTES:
        raise ArgumentSizeError(
            f"Arguments too large: {size} bytes (max 10MB)",
            code=grpc.StatusCode.INVALID_ARGUMENT,
            reason="ARGUMENT_SIZE_ERROR",
            field="arguments",
            metadata={"error": "ArgumentSizeError"},
        )
    return text


def fields(reply: tool_pb2.RunPythonScriptResponse) -> Dict[str, Any]:
    """Returns the set fields as an object."""
    return {field.name: list(value) if field.name in ("artifacts", "warnings") else value for field, value in reply.ListFields()}


def script_result(reply: tool_pb2.ExecuteScriptResponse, execution_id: str) -> ScriptExecutionResult:
    return ScriptExecutionResult(
        exit_code=reply.exit_code,
        stdout=reply.stdout,
        stderr=reply.stderr,
        execution_time_ms=reply.execution_time_ms,
        script_path=reply.script_path,
        signal=reply.signal if reply.HasField("signal") else None,
        signal_number=reply.signal_number if reply.HasField("signal_number") else None,
        timeout=reply.timeout,
        stdout_truncated=reply.stdout_truncated,
        stderr_truncated=reply.stderr_truncated,
        success=reply.success,
        signaled=reply.signaled,
        execution_id=execution_id,
        artifacts=list(reply.artifacts),
        warnings=list(reply.warnings),
    )


def command_result(reply: tool_pb2.ExecuteCommandResponse, execution_id: str) -> ExecutionResult:
    return ExecutionResult(
        success=reply.success,
        exit_code=reply.exit_code,
        stdout=reply.stdout,
        stderr=reply.stderr,
        execution_time=reply.execution_time,
        command=reply.command,
        error=reply.error if reply.HasField("error") else None,
        execution_id=execution_id,
        artifacts=list(reply.artifacts),
        warnings=list(reply.warnings),
        reason=reply.reason,
        missing_rule=reply.missing_rule,
        instead=reply.instead,
    )


def python_text(reply: tool_pb2.RunPythonResponse, execution_id: str) -> PythonText:
    text = PythonText(reply.text)
    text.execution_id, text.artifacts, text.warnings = execution_id, list(reply.artifacts), list(reply.warnings)
    return text


def tool(message: tool_pb2.Tool) -> Tool:
    # Unlike Struct, the definition keeps the order of keys, and whole numbers.
    definition = json.loads(message.definition_json) if message.definition_json else {}
    parameters = definition.get("function", {}).get("parameters")
    if parameters is None:
        parameters = json_format.MessageToDict(message.parameters)
    return Tool(message.name, message.description, parameters, definition)


def follow_call(stream: Any, on_output: Optional[Callable[[Chunk], None]]) -> ToolResult:
    """Reads a CallTool stream up to its result."""
    return tool_result(last_event(stream, "result", on_output).result)


def chunks_for(on_output: Optional[Callable[[Chunk], None]]) -> Callable[[pb.OutputChunk], None]:
    """Returns a function that passes output on as chunks with decoded text."""
    decoders = {n: codecs.getincrementaldecoder("utf-8")("replace") for n in _STREAMS}

    def deliver(output: pb.OutputChunk) -> None:
        if on_output is not None and output.stream in _STREAMS:
            text = decoders[output.stream].decode(output.data)
            on_output(Chunk(_STREAMS[output.stream], output.data, text))

    return deliver


def _events(stream: Any, name: str, on_output: Optional[Callable[[Chunk], None]]) -> Generator[Any, None, None]:
    """Yields the events of a stream of output that have the field name. An exception from
    on_output ends the call and cancels its program."""
    deliver = chunks_for(on_output)
    try:
        for event in stream:
            if event.HasField(name):
                yield event
            else:
                deliver(event.output)
    except grpc.RpcError as error:
        raise call_error(error) from None
    finally:
        stream.cancel()


def last_event(stream: Any, last: str, on_output: Optional[Callable[[Chunk], None]]) -> Any:
    """Reads a stream of output up to the event with the field last, and returns that event."""
    with contextlib.closing(_events(stream, last, on_output)) as events:
        for event in events:
            return event
    raise ended_without(last)


def last_events(stream: Any, last: str, on_output: Optional[Callable[[Chunk], None]]) -> List[Any]:
    """Reads a stream of output to its end, and returns its events with the field last."""
    events = list(_events(stream, last, on_output))
    if not events:
        raise ended_without(last)
    return events


def ended_without(last: str) -> CallError:
    return CallError(f"protocol: the stream ended without its {last}", grpc.StatusCode.INTERNAL)


def tool_result(result: tool_pb2.ToolResult) -> ToolResult:
    structured = None
    if result.HasField("structured"):
        structured = _whole(json_format.MessageToDict(result.structured))
    return ToolResult(result.content, structured, result.is_error, result.execution_id, list(result.artifacts), list(result.warnings))


def _whole(value: Any) -> Any:
    """Converts whole numbers back to int, because a Struct has only doubles."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
