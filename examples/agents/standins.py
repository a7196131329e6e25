"""Stand-ins for the agent frameworks, which cannot be installed everywhere. Each has the
call shapes that its framework documents, but no model. It makes the framework's checks,
and it derives schemas and calls tools as the framework does.

They are not the frameworks. They show that the tools have the documented shapes.
"""

import abc
import asyncio
import dataclasses
import inspect
import json
import os
import sys
import types
import typing

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


def schema_of(hint):
    """Returns the JSON Schema of a type hint. Raises TypeError for a type without a schema."""
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union and len(args) == 2 and type(None) in args:
        inner = schema_of(next(a for a in args if a is not type(None)))
        return {"anyOf": [inner, {"type": "null"}]}
    if origin is list:
        return {"type": "array", "items": schema_of(args[0])}
    if origin is dict and args[0] is str:
        return {"type": "object"}
    raise TypeError(f"no schema for {hint}")


def declare(function):
    """Returns name, description and parameters of a function, as both frameworks derive
    them: from its name, its docstring and its resolved type hints."""
    description = inspect.getdoc(function)
    if not description:
        raise ValueError(f"{function.__name__}: a tool needs a docstring")
    hints = typing.get_type_hints(function)
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{function.__name__}: {name} can't be given by name")
        properties[name] = schema_of(hints[name])
        if parameter.default is parameter.empty:
            required.append(name)
        else:
            json.dumps(parameter.default)  # must be JSON, because it becomes part of the schema
            properties[name]["default"] = parameter.default
    return {"name": function.__name__, "description": description, "parameters": {"type": "object", "properties": properties, "required": required}}


class FunctionTool:
    """google.adk.tools.FunctionTool: run_async(args=, tool_context=) drops arguments that
    the function does not have, names mandatory ones that are missing, and calls it with
    keywords. A result that is not a dict is wrapped as {"result": ...}."""

    def __init__(self, func):
        self.func = func
        self.declaration = declare(func)
        self.name = self.declaration["name"]

    async def run_async(self, *, args, tool_context):
        parameters = inspect.signature(self.func).parameters
        given = {name: value for name, value in args.items() if name in parameters}
        missing = [n for n in self.declaration["parameters"]["required"] if n not in given]
        if missing:
            return {"error": f"mandatory input parameters are not present: {missing}"}
        result = self.func(**given)
        if inspect.isawaitable(result):
            result = await result
        return result if isinstance(result, dict) else {"result": result}


class Agent:
    """google.adk.agents.Agent: its tools are functions or tools."""

    def __init__(self, *, name, model, description="", instruction="", tools=()):
        if not name.isidentifier():
            raise ValueError(f"agent name {name!r} is not an identifier")
        self.name, self.model, self.instruction = name, model, instruction
        self.tools = [t if isinstance(t, FunctionTool) else FunctionTool(t) for t in tools]

    def call(self, name, args):
        """Calls a tool like a model's function call, through JSON both ways."""
        (tool,) = [t for t in self.tools if t.name == name]
        response = asyncio.run(tool.run_async(args=json.loads(json.dumps(args)), tool_context=object()))
        return json.loads(json.dumps(response))


class StructuredTool:
    """langchain_core.tools.StructuredTool: invoke(input) takes a dict, or a tool call. The
    answer to a tool call is a message with text as content."""

    def __init__(self, func):
        self.func = func
        self.declaration = declare(func)
        self.name, self.description = self.declaration["name"], self.declaration["description"]

    def invoke(self, tool_call):
        arguments = tool_call["args"]
        unknown = set(arguments) - set(self.declaration["parameters"]["properties"])
        missing = set(self.declaration["parameters"]["required"]) - set(arguments)
        if unknown or missing:
            raise ValueError(f"{self.name}: validation: unknown {unknown}, missing {missing}")
        result = self.func(**arguments)
        content = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        return {"role": "tool", "tool_call_id": tool_call["id"], "content": content}


@dataclasses.dataclass
class ExecuteResponse:
    """deepagents.backends.protocol.ExecuteResponse."""

    output: str
    exit_code: typing.Optional[int] = None
    truncated: bool = False


@dataclasses.dataclass
class LsResult:
    """deepagents.backends.protocol.LsResult."""

    error: typing.Optional[str] = None
    entries: typing.Optional[list] = None


@dataclasses.dataclass
class ReadResult:
    """deepagents.backends.protocol.ReadResult."""

    error: typing.Optional[str] = None
    file_data: typing.Optional[dict] = None
    total_lines: typing.Optional[int] = None
    start_line: typing.Optional[int] = None
    end_line: typing.Optional[int] = None
    next_offset: typing.Optional[int] = None


@dataclasses.dataclass
class WriteResult:
    """deepagents.backends.protocol.WriteResult."""

    error: typing.Optional[str] = None
    path: typing.Optional[str] = None


@dataclasses.dataclass
class EditResult:
    """deepagents.backends.protocol.EditResult."""

    error: typing.Optional[str] = None
    path: typing.Optional[str] = None
    occurrences: typing.Optional[int] = None


@dataclasses.dataclass
class Found:
    """deepagents.backends.protocol.GlobResult and GrepResult."""

    error: typing.Optional[str] = None
    matches: typing.Optional[list] = None
    truncated: bool = False


@dataclasses.dataclass
class FileUploadResponse:
    """deepagents.backends.protocol.FileUploadResponse."""

    path: str
    error: typing.Optional[str] = None


@dataclasses.dataclass
class FileDownloadResponse:
    """deepagents.backends.protocol.FileDownloadResponse."""

    path: str
    content: typing.Optional[bytes] = None
    error: typing.Optional[str] = None


class BackendProtocol(abc.ABC):
    """deepagents.backends.protocol.BackendProtocol."""


class SandboxBackendProtocol(BackendProtocol):
    """deepagents.backends.protocol.SandboxBackendProtocol."""

    @property
    def id(self):
        raise NotImplementedError

    def execute(self, command, *, timeout=None):
        raise NotImplementedError


class DeepAgent:
    """The result of create_deep_agent, reduced to its tools. A backend that implements
    SandboxBackendProtocol adds `execute`, which passes timeout on if the backend takes it."""

    def __init__(self, *, model=None, tools=None, system_prompt=None, backend=None):
        self.system_prompt = system_prompt
        made = [StructuredTool(t) for t in tools or ()]
        if isinstance(backend, SandboxBackendProtocol):
            if not isinstance(backend.id, str) or not backend.id:
                raise TypeError("a sandbox backend has an id")
            if "timeout" not in inspect.signature(type(backend).execute).parameters:
                raise TypeError("execute takes a timeout")

            def execute(command: str, timeout: typing.Optional[int] = None) -> str:
                """Run a command in the sandbox."""
                response = backend.execute(command, timeout=timeout) if timeout else backend.execute(command)
                if not isinstance(response, ExecuteResponse):
                    raise TypeError("execute returns an ExecuteResponse")
                status = "succeeded" if response.exit_code == 0 else "failed"
                return f"{response.output}\n[Command {status} with exit code {response.exit_code}]"

            made.append(StructuredTool(execute))
        self.tools = {tool.name: tool for tool in made}

    def call(self, name, args):
        message = self.tools[name].invoke({"name": name, "args": json.loads(json.dumps(args)), "id": "call_1", "type": "tool_call"})
        return message["content"]


def install():
    """Installs the stand-ins under the frameworks' module names."""
    modules = {
        "google.adk": {},
        "google.adk.agents": {"Agent": Agent},
        "deepagents": {"create_deep_agent": DeepAgent},
        "deepagents.backends": {},
        "deepagents.backends.protocol": {
            "GlobResult": Found,
            "GrepResult": Found,
            **{
                part.__name__: part
                for part in (
                    ExecuteResponse, LsResult, ReadResult, WriteResult, EditResult,
                    FileUploadResponse, FileDownloadResponse, SandboxBackendProtocol,
                )
            },
        },
    }
    for name, content in modules.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        sys.modules[name] = module
