"""The client of a daemon, with a method for each call."""

from __future__ import annotations

import datetime
import os
import queue
import time
import weakref
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

import grpc

from skillrun import address as addresses
from skillrun import inputs, requests, tools
from skillrun.credentials import File, Interceptor, Token, channel_credentials
from skillrun.download import Download, save
from skillrun.errors import CallError, broken, call_error
from skillrun.inputs import Duration, Limits, Network, Session, Stdin
from skillrun.patience import Patience
from skillrun.push import Progress as PushProgress
from skillrun.push import Push
from skillrun.run import Chunk, Run, Sender
from skillrun.sessions import Put, Sessions
from skillrun.trace import Interceptor as TraceInterceptor
from skillrun.trace import trace_source
from skillrun.v1 import (
    execution_pb2 as pb,
    execution_pb2_grpc,
    session_pb2_grpc,
    skill_pb2,
    skill_pb2_grpc,
    system_pb2,
    system_pb2_grpc,
    tool_pb2,
    tool_pb2_grpc,
)

# The maximum size of a message from the daemon. An answer of ToolService has the whole
# output of a program. Every other message is smaller than 16 MiB.
MAX_RECEIVE_BYTES = 128 << 20

_OPTIONS: Tuple[Tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
    # The daemon refuses pings that come more often than every 30 s.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # A daemon that restarts is back within a second, sooner than gRPC's defaults expect.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Each client has its own connection, so that it knows the connection's state.
    ("grpc.use_local_subchannel_pool", 1),
)

# The header with the id of the execution of a ToolService call.
_EXECUTION_HEADER = "skillrun-execution-id"


def connect(
    address: Optional[str] = None,
    *,
    credentials: Optional[grpc.ChannelCredentials] = None,
    tls_ca: Optional[File] = None,
    tls_cert: Optional[File] = None,
    tls_key: Optional[File] = None,
    token: Optional[Token] = None,
    token_file: Optional[File] = None,
    traceparent: Optional[Callable[[], Optional[str]]] = None,
    timeout: float = 30.0,
    patience: Patience = Patience(),
) -> "Client":
    """Returns a client of the daemon at an address: "unix:///path", the absolute path of
    a socket, "tcp://host:port" or "host:port". None: $SKILLRUN_ADDRESS, else
    unix:///run/skillrun/skillrun.sock. It does not connect yet; without a daemon, the
    first call raises Unavailable.

    The connection is not encrypted unless tls_ca, tls_cert or credentials are given. tls_ca
    is a file with the authorities of the daemon's certificate, tls_cert and tls_key are
    files with this client's certificate and its private key, all in PEM. token, or the
    content of token_file, identifies the caller; it needs a Unix socket, a loopback address or
    an encrypted connection. token may be a function, which is called for each call. A file that
    can't be read raises OSError. timeout, in seconds, limits each call that runs no program.

    Each call sends the trace context that traceparent returns (W3C Trace Context); None or "":
    no trace. Without the argument, it is OpenTelemetry's current context if that is installed.
    """
    return Client(
        address,
        credentials=credentials,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        token=token,
        token_file=token_file,
        traceparent=traceparent,
        timeout=timeout,
        patience=patience,
    )


class Reach:
    """What a client knows of its connection."""

    _reached = False  # whether a daemon has ever answered

    def _may_repeat(self, error: CallError, whole: bool) -> bool:
        """Reports whether a request without a header may be sent again. whole says that no
        standard input was consumed, and that the request has a key."""
        if error.reason:
            self._reached = True
            return whole and error.reason == "DRAINING"  # another daemon takes over
        if not self._reached and "failed to connect" in error.message:
            return False  # no daemon was ever reached: report that at once
        self._reached = True
        # gRPC answers a message that is too large with RESOURCE_EXHAUSTED.
        return whole and broken(error) and error.code not in (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )


class Client(Reach, Sessions):
    """A connection to one daemon. Any number of threads may use it. Call ``close`` or use
    a ``with`` block: closing cancels the runs of this client that have not ended."""

    def __init__(
        self,
        address: Optional[str] = None,
        *,
        credentials: Optional[grpc.ChannelCredentials] = None,
        tls_ca: Optional[File] = None,
        tls_cert: Optional[File] = None,
        tls_key: Optional[File] = None,
        token: Optional[Token] = None,
        token_file: Optional[File] = None,
        traceparent: Optional[Callable[[], Optional[str]]] = None,
        timeout: float = 30.0,
        patience: Patience = Patience(),
    ) -> None:
        target = addresses.target(address)
        credentials, source = channel_credentials(target, credentials, tls_ca, tls_cert, tls_key, token, token_file)
        if credentials is not None:
            self._channel = grpc.secure_channel(target, credentials, options=_OPTIONS)
        else:
            self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        if source is not None:
            self._channel = grpc.intercept_channel(self._channel, Interceptor(source))
        trace = trace_source(traceparent)
        if trace is not None:
            self._channel = grpc.intercept_channel(self._channel, TraceInterceptor(trace))
        self._timeout = timeout
        self._patience = patience
        self._runs: "weakref.WeakSet[Run]" = weakref.WeakSet()
        self._cancelling: Set[Any] = set()
        # The generated stubs, for calls that this class does not wrap.
        self.execution_service: Any = execution_pb2_grpc.ExecutionServiceStub(self._channel)
        self.session_service: Any = session_pb2_grpc.SessionServiceStub(self._channel)
        self.skill_service: Any = skill_pb2_grpc.SkillServiceStub(self._channel)
        self.system_service: Any = system_pb2_grpc.SystemServiceStub(self._channel)
        self.tool_service: Any = tool_pb2_grpc.ToolServiceStub(self._channel)

    def close(self) -> None:
        """Cancels the runs of this client that have not ended and closes the connection."""
        for run in list(self._runs):
            run.close()
        for call in list(self._cancelling):
            call.exception()  # waits
        self._channel.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Running.

    def run(
        self,
        skill: str,
        *,
        script: Optional[str] = None,
        code: Optional[str] = None,
        language: str = "",
        command: Optional[str] = None,
        args: Sequence[str] = (),
        stdin: Optional[Stdin] = None,
        json_arguments: Union[str, Mapping[str, Any], None] = None,
        files: Optional[Mapping[str, inputs.Input]] = None,
        working_directory: str = "",
        env: Optional[Mapping[str, str]] = None,
        secret_env: Optional[Mapping[str, str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        limits: Optional[Limits] = None,
        network: Optional[Network] = None,
        on_disconnect: str = "continue",
        idempotency_key: str = "",
        queue_timeout: Optional[Duration] = None,
        session: Optional[Session] = None,
        deadline: Optional[float] = None,
    ) -> Run:
        """Starts a script of a skill, code, or a command line; exactly one of these must be
        given. It returns when the daemon has recorded the execution. The program may then
        still wait for a slot.

        files maps paths in /workspace to bytes, or to a pathlib.Path of a local file.
        json_arguments is an object, or its text, for standard input. stdin is bytes,
        text, an open binary file, or an iterable of bytes; see Pipe.

        The request is sent again only if the program cannot have started. To know that,
        the client adds an idempotency key, unless standard input is streamed. If a stream
        breaks later, the client attaches again. With on_disconnect="continue" the daemon
        lets the program run if the connection is lost, and this side cancels it if the
        caller leaves. With on_disconnect="cancel" the daemon cancels it at once, and the
        client cannot attach again.

        deadline is the maximum time of the whole run in seconds, including the wait for a
        slot. After it the run is cancelled and DeadlineExceeded is raised. In contrast,
        limits.wall_time limits the program alone, and exceeding it is an outcome.
        """
        request = requests.execute(
            skill,
            script=script,
            code=code,
            language=language,
            command=command,
            args=args,
            working_directory=working_directory,
            env=env,
            secret_env=secret_env,
            labels=labels,
            limits=limits,
            network=network,
            on_disconnect=on_disconnect,
            idempotency_key=idempotency_key,
            queue_timeout=queue_timeout,
            session=session,
        )
        return self._start(request, stdin, json_arguments, files, deadline)

    def run_code(self, skill: str, code: str, language: str = "", **options: Any) -> Run:
        """Starts a program given as text: python unless language says bash, sh, node, ruby
        or perl. For the options see run."""
        return self.run(skill, code=code, language=language, **options)

    def run_command(self, skill: str, command: str, **options: Any) -> Run:
        """Starts a command line that the skill's allowed-tools cover. No shell interprets
        it. For the options see run."""
        return self.run(skill, command=command, **options)

    def attach(self, execution_id: str, after_sequence: int = 0, deadline: Optional[float] = None) -> Run:
        """Follows an execution that was started elsewhere, or that has ended. It yields the
        stored events after a sequence number and then new ones. Leaving the loop does not
        cancel the execution. If the id is unknown, the loop raises NotFound."""
        return Run(self, execution_id, after_sequence=after_sequence, deadline=_at(deadline))

    def execution(self, execution_id: str) -> pb.Execution:
        """Returns the current state of an execution."""
        execution: pb.Execution = self._ask(self.execution_service.GetExecution, pb.GetExecutionRequest(execution_id=execution_id)).execution
        return execution

    def executions(
        self,
        *,
        skill: str = "",
        labels: Optional[Mapping[str, str]] = None,
        states: Sequence[pb.ExecutionState] = (),
        ends: Sequence[pb.ExecutionEnd] = (),
        principal: str = "",
        created_after: Optional[datetime.datetime] = None,
        created_before: Optional[datetime.datetime] = None,
        oldest_first: bool = False,
    ) -> Iterator[pb.Execution]:
        """Yields executions, newest first unless oldest_first is set, page by page. Their
        outcomes have no artifacts. A time without a time zone is in UTC."""
        request = requests.executions(skill, labels, states, ends, principal, created_after, created_before, oldest_first)
        return self._pages(self.execution_service.ListExecutions, request, lambda page: page.executions)

    def cancel(
        self,
        execution_id: str,
        grace: Optional[Duration] = None,
        reason: str = "",
        timeout: Optional[float] = None,
        wait: bool = True,
    ) -> pb.Execution:
        """Ends an execution and returns when it has ended, or at once if wait is False. The
        daemon sends SIGTERM, and SIGKILL after the grace. Cancelling an ended execution has
        no effect."""
        request = pb.CancelExecutionRequest(
            execution_id=execution_id, grace=inputs.duration(grace), reason=reason, return_immediately=not wait
        )
        # The daemon's maximum grace is 60 s.
        answer = self._ask(self.execution_service.CancelExecution, request, timeout=timeout or self._timeout + 60, retry=timeout is None)
        execution: pb.Execution = answer.execution
        return execution

    def delete(self, execution_id: str) -> None:
        """Removes an ended execution with its output and artifacts. If it has not ended, this
        raises FailedPrecondition: cancel it first."""
        self._ask(self.execution_service.DeleteExecution, pb.DeleteExecutionRequest(execution_id=execution_id), retry=False)

    def signal(self, execution_id: str, name: str) -> None:
        """Sends a signal, such as "SIGUSR1", to the main process of a running execution."""
        self._ask(self.execution_service.SignalExecution, pb.SignalExecutionRequest(execution_id=execution_id, signal=name), retry=False)

    # Artifacts.

    def artifacts(self, execution_id: str) -> Iterator[pb.Artifact]:
        """Yields the artifacts of an ended execution, sorted by path, page by page. It yields
        as many as the outcome has: a caller may save each of them, so a list without an end
        would fill the disk, and from a shorter list files would be missing."""
        left = self.execution(execution_id).outcome.artifact_count
        request = pb.ListArtifactsRequest(execution_id=execution_id, page_size=1000)
        for artifact in self._pages(self.execution_service.ListArtifacts, request, lambda page: page.artifacts):
            if left == 0:
                raise CallError("protocol: the daemon lists more artifacts than the outcome has", grpc.StatusCode.INTERNAL)
            left -= 1
            yield artifact
        if left > 0:
            raise CallError("protocol: the daemon lists fewer artifacts than the outcome has", grpc.StatusCode.INTERNAL)

    def download(self, execution_id: str, artifact: Union[str, pb.Artifact], to: BinaryIO) -> pb.Artifact:
        """Writes an artifact, given as such or by its path, to a binary file, and checks its
        size and SHA-256. If the stream breaks, the download continues where it broke. If
        the bytes are wrong, it raises DataLoss. After any exception the file may have some
        or all of the bytes."""
        request = pb.GetArtifactRequest(execution_id=execution_id)
        if isinstance(artifact, str):
            request.path = artifact
            name = artifact
        else:
            request.path, request.raw_path, name = artifact.path, artifact.raw_path, artifact.path

        def pieces(offset: int) -> Any:
            request.offset_bytes = offset
            return self._call(self.execution_service.GetArtifact, request)

        return Download(f"artifact {name!r}", pieces, self._patience).to(to)

    def save(self, execution_id: str, artifact: pb.Artifact, folder: Union[str, "os.PathLike[str]"]) -> str:
        """Downloads an artifact to its path beneath a folder and returns that path. The file
        gets its name only when it is complete and its SHA-256 is right. Whatever the
        artifact's path is, nothing outside the folder changes."""
        return save(folder, artifact, lambda to: self.download(execution_id, artifact, to))

    # Skills.

    def skills(self, include_hidden: bool = False) -> Iterator[skill_pb2.SkillSummary]:
        """Yields name, description and digest of each skill."""
        request = skill_pb2.ListSkillsRequest(include_hidden=include_hidden)
        return self._pages(self.skill_service.ListSkills, request, lambda page: page.skills)

    def skill(self, name: str) -> skill_pb2.Skill:
        """Returns every field of a skill's front matter, and its scripts."""
        skill: skill_pb2.Skill = self._ask(self.skill_service.GetSkill, skill_pb2.GetSkillRequest(skill=name)).skill
        return skill

    def activate(self, name: str) -> skill_pb2.ActivateSkillResponse:
        """Returns a skill's instructions with {baseDir} replaced, its allowed tools and
        limits, and the messages that an agent adds to its conversation."""
        return self._ask(self.skill_service.ActivateSkill, skill_pb2.ActivateSkillRequest(skill=name))

    def read_file(self, skill: str, path: str) -> bytes:
        """Returns the content of a skill's file, such as references/REFERENCE.md, after checking its SHA-256."""
        request = skill_pb2.ReadSkillFileRequest(skill=skill, path=path)

        def pieces(offset: int) -> Any:
            request.offset_bytes = offset
            return self._call(self.skill_service.ReadSkillFile, request)

        return Download(f"skill {skill}: {path}", pieces, self._patience).content()

    def check_command(self, skill: str, command: str) -> skill_pb2.CheckCommandResponse:
        """Returns whether a command line may run, with the rule or the reason. It runs nothing."""
        return self._ask(self.skill_service.CheckCommand, skill_pb2.CheckCommandRequest(skill=skill, command=command))

    def prepare(
        self, skill: str, rebuild: bool = False, on_output: Optional[Callable[[Chunk], None]] = None
    ) -> List[skill_pb2.SkillEnvironment]:
        """Has the daemon build the environments with a skill's packages, and returns them: of
        Python packages, of Node packages, and of each tool. A single one without a digest means
        that the skill needs no packages. An existing environment is returned at once, unless
        rebuild is set. on_output receives the output of the builds."""
        request = skill_pb2.PrepareSkillRequest(skill=skill, rebuild=rebuild)
        events = tools.last_events(self._call(self.skill_service.PrepareSkill, request), "environment", on_output)
        return [event.environment for event in events]

    def push(
        self,
        folder: Union[str, "os.PathLike[str]"],
        name: str = "",
        source: str = "",
        on_progress: Optional[PushProgress] = None,
    ) -> skill_pb2.PushSkillResponse:
        """Imports a folder as the newest version of a skill of the caller's tenant, and returns the version and
        what validation noticed. name is the name that SKILL.md must have ("": any), source the https URL that the
        skill comes from ("": the caller). Links are sent as links; the daemon refuses one that leaves the skill.
        on_progress is called with the bytes that were sent, and with all bytes. The call needs the role admin, and
        is never repeated. If a file cannot be read, it raises InputError, and nothing is imported."""
        reply: skill_pb2.PushSkillResponse = self._send(self.skill_service.PushSkill, Push(folder, name, source, on_progress))
        return reply

    def capabilities(self) -> system_pb2.GetCapabilitiesResponse:
        """Returns the capabilities of the daemon and its machine."""
        return self._ask(self.system_service.GetCapabilities, system_pb2.GetCapabilitiesRequest())

    # The published tools. A call of one is never repeated.

    def run_python_script(
        self,
        skill_name: str,
        script: str,
        timeout: Optional[Duration] = None,
        args: Sequence[str] = (),
        files: Optional[Mapping[str, inputs.Input]] = None,
    ) -> Dict[str, Any]:
        """Runs Python code in a skill's venv and returns the object of the function tool
        run_python_script: a run, a timeout, or {"error": ...}. "artifacts" and "warnings"
        are in it if there are any."""
        request = requests.run_python_script(skill_name, script, timeout, args, files)
        reply, _ = self._tool(self.tool_service.RunPythonScript, request)
        return tools.fields(reply)

    def execute_script(
        self,
        skill: str,
        script_path: str,
        arguments: Union[str, Mapping[str, Any], None] = None,
        timeout: Optional[Duration] = None,
        max_output_size: int = 0,
        args: Sequence[str] = (),
        files: Optional[Mapping[str, inputs.Input]] = None,
    ) -> tools.ScriptExecutionResult:
        """Runs a script of a skill with JSON arguments on standard input, and with args on
        its command line. If skillkit would raise an exception, this raises a CallError of
        that name, such as ArgumentSerializationError; those with the name of a builtin
        exception, such as FileNotFoundError, are also of the builtin's type."""
        request = requests.execute_script(skill, script_path, arguments, timeout, max_output_size, args, files)
        return tools.script_result(*self._tool(self.tool_service.ExecuteScript, request))

    def execute_command(
        self,
        skill: str,
        command: str,
        working_dir: str = "",
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[Duration] = None,
        files: Optional[Mapping[str, inputs.Input]] = None,
    ) -> tools.ExecutionResult:
        """Runs a command line that the skill's allowed-tools cover and returns the
        ExecutionResult of the Agent Skills guide. A refused command is a result too."""
        request = requests.execute_command(skill, command, working_dir, env, timeout, files)
        return tools.command_result(*self._tool(self.tool_service.ExecuteCommand, request))

    def run_python(
        self,
        code: str = "",
        *,
        script_path: str = "",
        working_directory: str = "",
        skill: str = "",
        timeout: Optional[Duration] = None,
        args: Sequence[str] = (),
        files: Optional[Mapping[str, inputs.Input]] = None,
    ) -> tools.PythonText:
        """Runs Python code or a file on the embedded CPython. Every outcome is text."""
        request = requests.run_python(code, script_path, working_directory, skill, timeout, args, files)
        return tools.python_text(*self._tool(self.tool_service.RunPython, request))

    def list_tools(self) -> List[tools.Tool]:
        """Returns the function tools for a model, with their JSON Schemas."""
        reply = self._ask(self.tool_service.ListTools, tool_pb2.ListToolsRequest())
        return [tools.tool(message) for message in reply.tools]

    def call_tool(
        self,
        name: str,
        arguments: Union[str, Mapping[str, Any], None] = None,
        on_output: Optional[Callable[[Chunk], None]] = None,
        timeout: Optional[float] = None,
    ) -> tools.ToolResult:
        """Runs a function tool with a model's arguments, an object or its text. on_output
        receives the program's output while it runs."""
        request = tool_pb2.CallToolRequest(name=name, arguments_json=requests.json_text(arguments) if arguments is not None else "")
        return tools.follow_call(self._call(self.tool_service.CallTool, request, timeout), on_output)

    # Internals.

    def _start(
        self,
        request: pb.ExecuteRequest,
        stdin: Optional[Stdin],
        json_arguments: Union[str, Mapping[str, Any], None],
        files: Optional[Mapping[str, inputs.Input]],
        deadline: Optional[float],
    ) -> Run:
        by = _at(deadline)
        stdin, inline = requests.add_input(request, stdin, json_arguments)
        opened = inputs.uploads(files)
        try:
            streamed = inputs.add_files(request, opened, max(0, inputs.INLINE_BYTES - inline))
            stream, sender, header = self._open(request, streamed, stdin, by)
        except BaseException:
            inputs.close(opened)
            raise
        run = Run(
            self, header.execution_id, stream=_Replay(header, stream), owned=True, deadline=by, sender=sender, uploads=streamed
        )
        run.header = header.header
        inputs.close(upload for upload in opened if upload not in streamed)
        self._runs.add(run)
        return run

    def _open(
        self, request: pb.ExecuteRequest, streamed: List[inputs.Upload], stdin: Optional[Stdin], deadline: Optional[float]
    ) -> Tuple[Any, Optional[Sender], pb.ExecutionEvent]:
        """Sends a request until its header arrives. It repeats the request, as often as
        patience allows, if it cannot have started, or cannot start twice."""
        attempt = 0
        while True:
            sender = Sender(request, streamed, stdin) if streamed or stdin is not None else None
            if sender is not None:
                stream = _Events(self._call(self.execution_service.ExecuteInteractive, sender.messages(), _left(deadline)))
                sender.started(stream)
            else:
                stream = _Events(self._call(self.execution_service.Execute, request, _left(deadline)))
            try:
                header = next(stream, None)
            except grpc.RpcError as cause:
                if sender is not None and sender.file_error is not None:
                    raise sender.file_error
                error = call_error(cause)
            except BaseException:
                stream.cancel()
                raise
            else:
                self._reached = True
                if header is not None and header.WhichOneof("event") == "header":
                    return stream, sender, header
                stream.cancel()
                if sender is not None and sender.file_error is not None:  # the daemon may end the call before it is cancelled
                    raise sender.file_error
                raise CallError("protocol: the first event is not a header", grpc.StatusCode.INTERNAL)
            attempt += 1
            if not self._may_repeat(error, stdin is None) or not self._patience.wait(attempt, deadline):
                raise error

    def _call(self, method: Any, request: Any, timeout: Optional[float] = None) -> Any:
        """Begins a streaming call. Its errors are raised with its first message."""
        try:
            return method(request, timeout=timeout)
        except ValueError as error:  # grpcio raises this on a closed channel
            raise CallError(f"the client is closed: {error}", grpc.StatusCode.CANCELLED) from error

    def _send(self, method: Any, sending: Union[Push, Put]) -> Any:
        """Makes a call with the messages of sending. If these end with an error, it raises the error."""
        begun: "queue.Queue[Any]" = queue.Queue()
        left = sending.messages()

        def messages() -> Iterator[Any]:
            yield from left
            if sending.error is not None:
                begun.get().cancel()

        try:
            call = method.future(messages())
            begun.put(call)
            return call.result()
        except grpc.FutureCancelledError:
            raise sending.error or CallError("the call was cancelled", grpc.StatusCode.CANCELLED) from None
        except grpc.RpcError as error:
            raise sending.error or call_error(error) from None
        except ValueError as error:
            raise CallError(f"the client is closed: {error}", grpc.StatusCode.CANCELLED) from error

    def _attach_stream(self, execution_id: str, after_sequence: int, deadline: Optional[float]) -> Any:
        request = pb.AttachExecutionRequest(execution_id=execution_id, after_sequence=after_sequence)
        return _Events(self._call(self.execution_service.AttachExecution, request, _left(deadline)))

    def _get(self, execution_id: str) -> pb.Execution:
        request = pb.GetExecutionRequest(execution_id=execution_id)
        execution: pb.Execution = self._ask(self.execution_service.GetExecution, request, retry=False).execution
        return execution

    def _cancel_soon(self, execution_id: str, reason: str) -> None:
        """Requests a cancel without waiting for the answer. It never raises."""
        request = pb.CancelExecutionRequest(execution_id=execution_id, reason=reason)
        try:
            call = self.execution_service.CancelExecution.future(request, timeout=self._timeout)
            self._cancelling.add(call)  # grpcio ends a call without references
            call.add_done_callback(self._cancelling.discard)
        except Exception:
            pass

    def _ask(self, method: Any, request: Any, timeout: Optional[float] = None, retry: bool = True) -> Any:
        """Makes a call that can be repeated without harm."""
        attempt = 0
        while True:
            try:
                reply = self._unary(method, request, timeout or self._timeout)[0]
                self._reached = True
                return reply
            except CallError as error:
                attempt += 1
                again = retry and error.code == grpc.StatusCode.UNAVAILABLE and self._may_repeat(error, True)
                if not again or not self._patience.wait(attempt, None):
                    raise

    def _tool(self, method: Any, request: Any) -> Tuple[Any, str]:
        """Makes a call that runs a program, and never repeats it. Returns the reply and the execution's id."""
        reply, call = self._unary(method, request, None)
        return reply, execution_of(call.initial_metadata())

    def _unary(self, method: Any, request: Any, timeout: Optional[float]) -> Tuple[Any, Any]:
        try:
            reply, call = method.with_call(request, timeout=timeout)
            return reply, call
        except grpc.RpcError as error:
            raise call_error(error) from None
        except ValueError as error:
            raise CallError(f"the client is closed: {error}", grpc.StatusCode.CANCELLED) from error

    def _pages(self, method: Any, request: Any, items: Callable[[Any], Any]) -> Iterator[Any]:
        while True:
            page = self._ask(method, request)
            found = items(page)
            yield from found
            if not page.next_page_token:
                return
            if not found:  # such a list would have no end
                raise CallError("protocol: a page without entries is not the last one", grpc.StatusCode.INTERNAL)
            request.page_token = page.next_page_token


def execution_of(metadata: Any) -> str:
    """Returns the id of the execution of a ToolService call; empty if nothing ran."""
    return next((value for key, value in metadata or () if key == _EXECUTION_HEADER), "")


class _Events:
    """The events of a call whose responses have one event each."""

    def __init__(self, responses: Any) -> None:
        self._responses = responses

    def __iter__(self) -> "_Events":
        return self

    def __next__(self) -> pb.ExecutionEvent:
        event: pb.ExecutionEvent = next(self._responses).event
        return event

    def cancel(self) -> None:
        self._responses.cancel()


class _Replay:
    """A stream whose first event was already read."""

    def __init__(self, first: pb.ExecutionEvent, stream: Any) -> None:
        self._first: Optional[pb.ExecutionEvent] = first
        self._stream = stream

    def __iter__(self) -> "_Replay":
        return self

    def __next__(self) -> pb.ExecutionEvent:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        event: pb.ExecutionEvent = next(self._stream)
        return event

    def cancel(self) -> None:
        self._stream.cancel()


def _at(seconds: Optional[float]) -> Optional[float]:
    """Converts a duration from now into a time of time.monotonic."""
    return None if seconds is None else time.monotonic() + seconds


def _left(deadline: Optional[float]) -> Optional[float]:
    return None if deadline is None else max(0.001, deadline - time.monotonic())
