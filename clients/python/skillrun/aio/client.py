"""The client of a daemon for asyncio, with a coroutine for each call. skillrun.client is the same for
threads, and both share their requests, results and decisions."""

from __future__ import annotations

import asyncio
import datetime
import io
import os
import weakref
from typing import Any, AsyncIterator, BinaryIO, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import grpc

from skillrun import address as addresses
from skillrun import inputs, requests, tools
from skillrun.aio.channel import Events, Stream, channel, translated
from skillrun.aio.run import Run, Sender, Stdin, _more, in_own_thread
from skillrun.aio.sessions import Sessions
from skillrun.client import _OPTIONS, Reach, _at, _left, execution_of
from skillrun.credentials import File, Token, channel_credentials
from skillrun.download import Progress, saving
from skillrun.errors import CallError, broken
from skillrun.inputs import Duration, Limits, Network, Session
from skillrun.patience import Patience
from skillrun.push import Progress as PushProgress
from skillrun.push import Push
from skillrun.run import Chunk
from skillrun.sessions import Put
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


class Client(Reach, Sessions):
    """A connection to one daemon. Any number of tasks of one event loop may use it. Call ``close`` or
    use an ``async with`` block: closing cancels the runs of this client that have not ended."""

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
        self._channel = channel(target, credentials, source, trace_source(traceparent), _OPTIONS)
        self._timeout = timeout
        self._patience = patience
        self._runs: "weakref.WeakSet[Run]" = weakref.WeakSet()
        # The generated stubs, for calls that this class does not wrap.
        self.execution_service: Any = execution_pb2_grpc.ExecutionServiceStub(self._channel)
        self.session_service: Any = session_pb2_grpc.SessionServiceStub(self._channel)
        self.skill_service: Any = skill_pb2_grpc.SkillServiceStub(self._channel)
        self.system_service: Any = system_pb2_grpc.SystemServiceStub(self._channel)
        self.tool_service: Any = tool_pb2_grpc.ToolServiceStub(self._channel)

    async def close(self) -> None:
        """Cancels the runs of this client that have not ended and closes the connection."""
        for run in list(self._runs):
            await run.close()
        await self._channel.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Running.

    async def run(
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
        text, an open binary file, or an iterable of bytes, also an asynchronous one; see Pipe.

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
        return await self._start(request, stdin, json_arguments, files, deadline)

    async def run_code(self, skill: str, code: str, language: str = "", **options: Any) -> Run:
        """Starts a program given as text: python unless language says bash, sh, node, ruby
        or perl. For the options see run."""
        return await self.run(skill, code=code, language=language, **options)

    async def run_command(self, skill: str, command: str, **options: Any) -> Run:
        """Starts a command line that the skill's allowed-tools cover. No shell interprets
        it. For the options see run."""
        return await self.run(skill, command=command, **options)

    def attach(self, execution_id: str, after_sequence: int = 0, deadline: Optional[float] = None) -> Run:
        """Follows an execution that was started elsewhere, or that has ended. It yields the
        stored events after a sequence number and then new ones. Leaving the loop does not
        cancel the execution. If the id is unknown, the loop raises NotFound."""
        return Run(self, execution_id, after_sequence=after_sequence, deadline=_at(deadline))

    async def execution(self, execution_id: str) -> pb.Execution:
        """Returns the current state of an execution."""
        execution: pb.Execution = (await self._ask(self.execution_service.GetExecution, pb.GetExecutionRequest(execution_id=execution_id))).execution
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
    ) -> AsyncIterator[pb.Execution]:
        """Yields executions, newest first unless oldest_first is set, page by page. Their
        outcomes have no artifacts. A time without a time zone is in UTC."""
        request = requests.executions(skill, labels, states, ends, principal, created_after, created_before, oldest_first)
        return self._pages(self.execution_service.ListExecutions, request, lambda page: page.executions)

    async def cancel(
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
        answer = await self._ask(self.execution_service.CancelExecution, request, timeout=timeout or self._timeout + 60, retry=timeout is None)
        execution: pb.Execution = answer.execution
        return execution

    async def delete(self, execution_id: str) -> None:
        """Removes an ended execution with its output and artifacts. If it has not ended, this
        raises FailedPrecondition: cancel it first."""
        await self._ask(self.execution_service.DeleteExecution, pb.DeleteExecutionRequest(execution_id=execution_id), retry=False)

    async def signal(self, execution_id: str, name: str) -> None:
        """Sends a signal, such as "SIGUSR1", to the main process of a running execution."""
        await self._ask(self.execution_service.SignalExecution, pb.SignalExecutionRequest(execution_id=execution_id, signal=name), retry=False)

    # Artifacts.

    async def artifacts(self, execution_id: str) -> AsyncIterator[pb.Artifact]:
        """Yields the artifacts of an ended execution, sorted by path, page by page. It yields
        as many as the outcome has: a caller may save each of them, so a list without an end
        would fill the disk, and from a shorter list files would be missing."""
        left = (await self.execution(execution_id)).outcome.artifact_count
        request = pb.ListArtifactsRequest(execution_id=execution_id, page_size=1000)
        async for artifact in self._pages(self.execution_service.ListArtifacts, request, lambda page: page.artifacts):
            if left == 0:
                raise CallError("protocol: the daemon lists more artifacts than the outcome has", grpc.StatusCode.INTERNAL)
            left -= 1
            yield artifact
        if left > 0:
            raise CallError("protocol: the daemon lists fewer artifacts than the outcome has", grpc.StatusCode.INTERNAL)

    async def download(self, execution_id: str, artifact: Union[str, pb.Artifact], to: BinaryIO) -> pb.Artifact:
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

        return await self._fetch(Progress(f"artifact {name!r}"), pieces, to)

    async def save(self, execution_id: str, artifact: pb.Artifact, folder: Union[str, "os.PathLike[str]"]) -> str:
        """Downloads an artifact to its path beneath a folder and returns that path. The file
        gets its name only when it is complete and its SHA-256 is right. Whatever the
        artifact's path is, nothing outside the folder changes."""
        with saving(folder, artifact) as (file, path):
            await self.download(execution_id, artifact, file)
        return path

    # Skills.

    def skills(self, include_hidden: bool = False) -> AsyncIterator[skill_pb2.SkillSummary]:
        """Yields name, description and digest of each skill."""
        request = skill_pb2.ListSkillsRequest(include_hidden=include_hidden)
        return self._pages(self.skill_service.ListSkills, request, lambda page: page.skills)

    async def skill(self, name: str) -> skill_pb2.Skill:
        """Returns every field of a skill's front matter, and its scripts."""
        skill: skill_pb2.Skill = (await self._ask(self.skill_service.GetSkill, skill_pb2.GetSkillRequest(skill=name))).skill
        return skill

    async def activate(self, name: str) -> skill_pb2.ActivateSkillResponse:
        """Returns a skill's instructions with {baseDir} replaced, its allowed tools and
        limits, and the messages that an agent adds to its conversation."""
        return await self._ask(self.skill_service.ActivateSkill, skill_pb2.ActivateSkillRequest(skill=name))

    async def read_file(self, skill: str, path: str) -> bytes:
        """Returns the content of a skill's file, such as references/REFERENCE.md, after checking its SHA-256."""
        request = skill_pb2.ReadSkillFileRequest(skill=skill, path=path)

        def pieces(offset: int) -> Any:
            request.offset_bytes = offset
            return self._call(self.skill_service.ReadSkillFile, request)

        buffer = io.BytesIO()
        await self._fetch(Progress(f"skill {skill}: {path}"), pieces, buffer)
        return buffer.getvalue()

    async def check_command(self, skill: str, command: str) -> skill_pb2.CheckCommandResponse:
        """Returns whether a command line may run, with the rule or the reason. It runs nothing."""
        return await self._ask(self.skill_service.CheckCommand, skill_pb2.CheckCommandRequest(skill=skill, command=command))

    async def prepare(
        self, skill: str, rebuild: bool = False, on_output: Optional[Callable[[Chunk], None]] = None
    ) -> List[skill_pb2.SkillEnvironment]:
        """Has the daemon build the environments with a skill's packages, and returns them: of
        Python packages, of Node packages, and of each tool. A single one without a digest means
        that the skill needs no packages. An existing environment is returned at once, unless
        rebuild is set. on_output receives the output of the builds."""
        request = skill_pb2.PrepareSkillRequest(skill=skill, rebuild=rebuild)
        stream = self._call(self.skill_service.PrepareSkill, request)
        environments = [event.environment async for event in _with(stream, "environment", on_output)]
        if not environments:
            raise tools.ended_without("environment")
        return environments

    async def push(
        self,
        folder: Union[str, "os.PathLike[str]"],
        name: str = "",
        source: str = "",
        on_progress: Optional[PushProgress] = None,
    ) -> skill_pb2.PushSkillResponse:
        """Imports a folder as the newest version of a skill of the caller's tenant, as skillrun.Client.push does.
        on_progress is called in a thread."""
        push = await asyncio.to_thread(Push, folder, name, source, on_progress)
        reply: skill_pb2.PushSkillResponse = await self._send(self.skill_service.PushSkill, push)
        return reply

    async def capabilities(self) -> system_pb2.GetCapabilitiesResponse:
        """Returns the capabilities of the daemon and its machine."""
        return await self._ask(self.system_service.GetCapabilities, system_pb2.GetCapabilitiesRequest())

    # The published tools. A call of one is never repeated.

    async def run_python_script(
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
        request = await asyncio.to_thread(requests.run_python_script, skill_name, script, timeout, args, files)
        reply, _ = await self._tool(self.tool_service.RunPythonScript, request)
        return tools.fields(reply)

    async def execute_script(
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
        request = await asyncio.to_thread(requests.execute_script, skill, script_path, arguments, timeout, max_output_size, args, files)
        return tools.script_result(*await self._tool(self.tool_service.ExecuteScript, request))

    async def execute_command(
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
        request = await asyncio.to_thread(requests.execute_command, skill, command, working_dir, env, timeout, files)
        return tools.command_result(*await self._tool(self.tool_service.ExecuteCommand, request))

    async def run_python(
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
        request = await asyncio.to_thread(requests.run_python, code, script_path, working_directory, skill, timeout, args, files)
        return tools.python_text(*await self._tool(self.tool_service.RunPython, request))

    async def list_tools(self) -> List[tools.Tool]:
        """Returns the function tools for a model, with their JSON Schemas."""
        reply = await self._ask(self.tool_service.ListTools, tool_pb2.ListToolsRequest())
        return [tools.tool(message) for message in reply.tools]

    async def call_tool(
        self,
        name: str,
        arguments: Union[str, Mapping[str, Any], None] = None,
        on_output: Optional[Callable[[Chunk], None]] = None,
        timeout: Optional[float] = None,
    ) -> tools.ToolResult:
        """Runs a function tool with a model's arguments, an object or its text. on_output
        receives the program's output while it runs."""
        request = tool_pb2.CallToolRequest(name=name, arguments_json=requests.json_text(arguments) if arguments is not None else "")
        events = _with(self._call(self.tool_service.CallTool, request, timeout), "result", on_output)
        try:
            async for event in events:
                return tools.tool_result(event.result)
        finally:
            await events.aclose()
        raise tools.ended_without("result")

    # Internals.

    async def _start(
        self,
        request: pb.ExecuteRequest,
        stdin: Optional[Stdin],
        json_arguments: Union[str, Mapping[str, Any], None],
        files: Optional[Mapping[str, inputs.Input]],
        deadline: Optional[float],
    ) -> Run:
        by = _at(deadline)
        if request.idempotency_key and stdin is not None and hasattr(stdin, "__aiter__"):
            raise ValueError("stdin: an idempotency key needs bytes, text or a file")
        stdin, inline = await in_own_thread(requests.add_input, request, stdin, json_arguments)
        opened = await asyncio.to_thread(inputs.uploads, files)
        try:
            streamed = await asyncio.to_thread(inputs.add_files, request, opened, max(0, inputs.INLINE_BYTES - inline))
            stream, sender, header = await self._open(request, streamed, stdin, by)
        except BaseException:
            inputs.close(opened)
            raise
        run = Run(
            self, header.execution_id, events=Events(stream, header), owned=True, deadline=by, sender=sender, uploads=streamed
        )
        run.header = header.header
        inputs.close(upload for upload in opened if upload not in streamed)
        self._runs.add(run)
        return run

    async def _open(
        self, request: pb.ExecuteRequest, streamed: List[inputs.Upload], stdin: Optional[Stdin], deadline: Optional[float]
    ) -> Tuple[Stream, Optional[Sender], pb.ExecutionEvent]:
        """Sends a request until its header arrives. It repeats the request, as often as
        patience allows, if it cannot have started, or cannot start twice."""
        attempt = 0
        while True:
            sender = Sender(request, streamed, stdin) if streamed or stdin is not None else None
            if sender is not None:
                stream = self._call(self.execution_service.ExecuteInteractive, sender.messages(), _left(deadline))
                sender.started(stream)
            else:
                stream = self._call(self.execution_service.Execute, request, _left(deadline))
            try:
                header = await Events(stream).next()
            except CallError as cause:
                if sender is not None and sender.file_error is not None:
                    raise sender.file_error
                error = cause
            except BaseException:
                stream.cancel()
                raise
            else:
                self._reached = True
                if header is not None and header.WhichOneof("event") == "header":
                    return stream, sender, header
                stream.cancel()
                raise CallError("protocol: the first event is not a header", grpc.StatusCode.INTERNAL)
            attempt += 1
            pause = self._patience.pause(attempt, deadline)
            if not self._may_repeat(error, stdin is None) or pause is None:
                raise error
            await asyncio.sleep(pause)

    def _call(self, method: Any, request: Any, timeout: Optional[float] = None) -> Stream:
        """Begins a streaming call. Its errors are raised with its first message."""
        with translated():
            return Stream(method(request, timeout=timeout))

    async def _send(self, method: Any, sending: Union[Push, Put]) -> Any:
        """Makes a call with the messages of sending. If these end with an error, it raises the error."""
        left = sending.messages()

        async def messages() -> AsyncIterator[Any]:
            while True:
                message = await asyncio.to_thread(_more, left)
                if message is None:
                    break
                yield message
            if sending.error is not None:
                call.cancel()

        with translated():
            call = method(messages())
            try:
                return await call
            except (grpc.RpcError, asyncio.CancelledError):
                if sending.error is not None:
                    raise sending.error from None
                raise

    def _attach_stream(self, execution_id: str, after_sequence: int, deadline: Optional[float]) -> Events:
        request = pb.AttachExecutionRequest(execution_id=execution_id, after_sequence=after_sequence)
        return Events(self._call(self.execution_service.AttachExecution, request, _left(deadline)))

    async def _ask(self, method: Any, request: Any, timeout: Optional[float] = None, retry: bool = True) -> Any:
        """Makes a call that can be repeated without harm."""
        attempt = 0
        while True:
            try:
                with translated():
                    reply = await method(request, timeout=timeout or self._timeout)
                self._reached = True
                return reply
            except CallError as error:
                attempt += 1
                again = retry and error.code == grpc.StatusCode.UNAVAILABLE and self._may_repeat(error, True)
                pause = self._patience.pause(attempt, None)
                if not again or pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _tool(self, method: Any, request: Any) -> Tuple[Any, str]:
        """Makes a call that runs a program, and never repeats it. Returns the reply and the execution's id."""
        with translated():
            call = method(request)
            reply = await call
            return reply, execution_of(await call.initial_metadata())

    async def _pages(self, method: Any, request: Any, items: Callable[[Any], Any]) -> AsyncIterator[Any]:
        while True:
            page = await self._ask(method, request)
            found = items(page)
            for item in found:
                yield item
            if not page.next_page_token:
                return
            if not found:  # such a list would have no end
                raise CallError("protocol: a page without entries is not the last one", grpc.StatusCode.INTERNAL)
            request.page_token = page.next_page_token

    async def _fetch(self, progress: Progress, open: Callable[[int], Stream], file: BinaryIO) -> Any:
        """Downloads a file. open begins a stream of pieces at an offset."""
        attempt = 0
        while True:
            before = progress.at
            stream = open(before)
            try:
                async for piece in stream:
                    await asyncio.to_thread(progress.take, piece, file)
                progress.stream_ended()
                return progress.checked()
            except CallError as error:
                if progress.at > before:
                    attempt = 0
                attempt += 1
                pause = self._patience.pause(attempt, None)
                if not broken(error) or pause is None:
                    raise
            finally:
                stream.cancel()
            await asyncio.sleep(pause)


async def _with(stream: Stream, name: str, on_output: Optional[Callable[[Chunk], None]]) -> Any:
    """Yields the events of a stream of output that have the field name. An exception from
    on_output ends the call and cancels its program."""
    deliver = tools.chunks_for(on_output)
    try:
        async for event in stream:
            if event.HasField(name):
                yield event
            else:
                deliver(event.output)
    finally:
        stream.cancel()
