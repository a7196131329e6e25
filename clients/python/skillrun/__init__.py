"""Runs the scripts of agent skills through a skillrund daemon::

    import sys
    import skillrun

    with skillrun.connect() as client:
        for chunk in client.run("calculator", script="scripts/calc.py", args=["2 + 2"]):
            sys.stdout.buffer.write(chunk.data)

Start with connect, which returns a Client, and Client.run, which returns a Run.

There are two kinds of failure. A program that fails is an outcome, which ``check`` turns
into a ProgramError. Every other exception says that nothing ran, or that the daemon, the
connection or this side failed. If a stream breaks while a program runs, the client
attaches again, and every byte arrives once. A request is sent again only if it cannot
have started.
"""

from skillrun.client import Client, connect
from skillrun.errors import (
    AlreadyExists,
    ArgumentSerializationError,
    ArgumentSizeError,
    Busy,
    CallError,
    DataLoss,
    DeadlineExceeded,
    Denied,
    ExecutionLost,
    FailedPrecondition,
    InputLost,
    InterpreterNotFoundError,
    InvalidRequest,
    NotFound,
    PathSecurityError,
    ProgramError,
    ScriptPermissionError,
    SkillrunError,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from skillrun.inputs import NO_NETWORK, File, InputError, Limits, Network, Pipe, Resource, Session
from skillrun.patience import Patience
from skillrun.run import Chunk, Result, Run
from skillrun.tools import ExecutionResult, PythonText, ScriptExecutionResult, Tool, ToolResult

__all__ = [
    "AlreadyExists",
    "ArgumentSerializationError",
    "ArgumentSizeError",
    "Busy",
    "CallError",
    "Chunk",
    "Client",
    "DataLoss",
    "DeadlineExceeded",
    "Denied",
    "ExecutionLost",
    "ExecutionResult",
    "FailedPrecondition",
    "File",
    "InputError",
    "InputLost",
    "InterpreterNotFoundError",
    "InvalidRequest",
    "Limits",
    "NO_NETWORK",
    "Network",
    "NotFound",
    "PathSecurityError",
    "Patience",
    "Pipe",
    "ProgramError",
    "PythonText",
    "Resource",
    "Result",
    "Run",
    "ScriptExecutionResult",
    "ScriptPermissionError",
    "Session",
    "SkillrunError",
    "Tool",
    "ToolResult",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
    "connect",
]
