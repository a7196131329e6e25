"""Makes the requests of the calls. Client and skillrun.aio.Client share these functions; their
methods say what the arguments mean."""

from __future__ import annotations

import collections.abc
import datetime
import json
import uuid
from typing import Any, Iterable, Mapping, Optional, Sequence, Tuple, Union

import grpc

from skillrun import inputs
from skillrun.errors import ArgumentSerializationError
from skillrun.inputs import Duration, InputError, Limits, Network, Session
from skillrun.tools import script_arguments
from skillrun.v1 import execution_pb2 as pb
from skillrun.v1 import tool_pb2

Arguments = Union[str, Mapping[str, Any], None]
Files = Optional[Mapping[str, inputs.Input]]

_ON_DISCONNECT = {"cancel": pb.ON_DISCONNECT_CANCEL, "continue": pb.ON_DISCONNECT_CONTINUE}


def execute(
    skill: str,
    *,
    script: Optional[str],
    code: Optional[str],
    language: str,
    command: Optional[str],
    args: Sequence[str],
    working_directory: str,
    env: Optional[Mapping[str, str]],
    secret_env: Optional[Mapping[str, str]],
    labels: Optional[Mapping[str, str]],
    limits: Optional[Limits],
    network: Optional[Network],
    on_disconnect: str,
    idempotency_key: str,
    queue_timeout: Optional[Duration],
    session: Optional[Session],
) -> pb.ExecuteRequest:
    """Returns a request without its input. Raises TypeError or ValueError for arguments that
    contradict each other."""
    sources = [name for name, value in (("script", script), ("code", code), ("command", command)) if value is not None]
    if len(sources) != 1:
        raise TypeError(f"run: want one of script, code and command, got {' and '.join(sources) or 'none'}")
    if on_disconnect not in _ON_DISCONNECT:
        raise ValueError(f"on_disconnect {on_disconnect!r}: want cancel or continue")
    if isinstance(args, (str, bytes)):
        raise TypeError("args: want a list of strings, got one string")
    args = list(args or ())  # it may be an iterator, which can be read once
    _strings("args", args)
    for name, texts in (("env", env), ("secret_env", secret_env), ("labels", labels)):
        if texts is not None:
            if not isinstance(texts, collections.abc.Mapping):
                raise TypeError(f"{name}: want a dict, got {type(texts).__name__}")
            _strings(name, [*texts.keys(), *texts.values()])
    for name, given, kind in (("limits", limits, Limits), ("network", network, Network), ("session", session, Session)):
        if given is not None and not isinstance(given, kind):
            raise TypeError(f"{name}: want a skillrun.{kind.__name__}, got {type(given).__name__}")
    request = pb.ExecuteRequest(
        skill=skill,
        args=args,
        working_directory=working_directory,
        env=env or {},
        secret_env=secret_env or {},
        labels=labels or {},
        on_disconnect=_ON_DISCONNECT[on_disconnect],
        idempotency_key=idempotency_key,
        queue_timeout=inputs.duration(queue_timeout),
    )
    if script is not None:
        request.script = script
    elif code is not None:
        request.code.text, request.code.language = code, language
    elif command is not None:
        request.command = command
    if limits is not None:
        request.limits.CopyFrom(limits.message())
    if network is not None:
        request.network_rules.CopyFrom(network.message())
    if session is not None:
        request.session.CopyFrom(session.message())
    return request


def _strings(name: str, values: Iterable[object]) -> None:
    """Raises TypeError with the parameter's name; protobuf's error does not have it."""
    for value in values:
        if not isinstance(value, (str, bytes)):  # protobuf takes bytes in UTF-8, too
            raise TypeError(f"{name}: want strings, got {type(value).__name__}")


def add_input(request: pb.ExecuteRequest, stdin: Any, json_arguments: Arguments) -> Tuple[Any, int]:
    """Adds standard input that can be part of the request, and returns the one that must be
    streamed, or None, and how many bytes of the request it takes. A request whose standard input
    is not streamed gets an idempotency key, so that it can be sent again."""
    small = inputs.small_stdin(stdin, keyed=bool(request.idempotency_key))
    if json_arguments is not None:
        request.json_arguments = json_text(json_arguments)
        if small and request.idempotency_key:
            raise ValueError("stdin: not allowed after JSON arguments if there is an idempotency key")
        small = None if small else small  # standard input after the arguments is streamed
    elif small:
        request.stdin_bytes = small
    if small is None:
        return stdin, 0
    if not request.idempotency_key:
        request.idempotency_key = "skillrun-python-" + uuid.uuid4().hex
    return None, len(small)


def executions(
    skill: str,
    labels: Optional[Mapping[str, str]],
    states: Sequence[pb.ExecutionState],
    ends: Sequence[pb.ExecutionEnd],
    principal: str,
    created_after: Optional[datetime.datetime],
    created_before: Optional[datetime.datetime],
    oldest_first: bool,
) -> pb.ListExecutionsRequest:
    request = pb.ListExecutionsRequest(skill=skill, labels=labels or {}, states=states, ends=ends, principal=principal)
    if created_after is not None:
        request.created_after.FromDatetime(created_after)
    if created_before is not None:
        request.created_before.FromDatetime(created_before)
    if oldest_first:
        request.order = pb.EXECUTION_ORDER_OLDEST_FIRST
    return request


def run_python_script(
    skill_name: str, script: str, timeout: Optional[Duration], args: Sequence[str], files: Files
) -> tool_pb2.RunPythonScriptRequest:
    return tool_pb2.RunPythonScriptRequest(
        skill_name=skill_name, script=script, timeout=inputs.duration(timeout), args=args, files=inputs.whole_files(files)
    )


def execute_script(
    skill: str,
    script_path: str,
    arguments: Arguments,
    timeout: Optional[Duration],
    max_output_size: int,
    args: Sequence[str],
    files: Files,
) -> tool_pb2.ExecuteScriptRequest:
    request = tool_pb2.ExecuteScriptRequest(
        skill=skill,
        script_path=script_path,
        timeout=inputs.duration(timeout),
        max_output_size=max_output_size,
        args=args,
        files=inputs.whole_files(files),
    )
    if arguments is not None:
        request.arguments_json = script_arguments(script_json(arguments))
    return request


def execute_command(
    skill: str, command: str, working_dir: str, env: Optional[Mapping[str, str]], timeout: Optional[Duration], files: Files
) -> tool_pb2.ExecuteCommandRequest:
    return tool_pb2.ExecuteCommandRequest(
        skill=skill,
        command=command,
        working_dir=working_dir,
        env=env or {},
        timeout=inputs.duration(timeout),
        files=inputs.whole_files(files),
    )


def run_python(
    code: str,
    script_path: str,
    working_directory: str,
    skill: str,
    timeout: Optional[Duration],
    args: Sequence[str],
    files: Files,
) -> tool_pb2.RunPythonRequest:
    return tool_pb2.RunPythonRequest(
        code=code,
        script_path=script_path,
        working_directory=working_directory,
        skill=skill,
        timeout=inputs.duration(timeout),
        args=args,
        files=inputs.whole_files(files),
    )


def json_text(value: Union[str, Mapping[str, Any]]) -> str:
    """Returns a JSON object as text. Text is returned as it is."""
    try:
        text = value if isinstance(value, str) else json.dumps(dict(value), ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"arguments: {error.object[error.start]!r} is half of a surrogate pair, which UTF-8 cannot encode") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"arguments: {error}") from error
    return text


def script_json(value: Union[str, Mapping[str, Any]]) -> str:
    """Returns json_text of the arguments of execute_script, or raises the exception of its
    contract."""
    try:
        return json_text(value)
    except InputError as error:
        cause = str(error).replace("arguments: ", "", 1)
        raise ArgumentSerializationError(
            f"Cannot serialize arguments: {cause}",
            code=grpc.StatusCode.INVALID_ARGUMENT,
            reason="ARGUMENT_SERIALIZATION_ERROR",
            field="arguments",
            metadata={"error": "ArgumentSerializationError"},
        ) from error
