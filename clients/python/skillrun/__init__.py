"""Runs the scripts of agent skills through a skillrund daemon::

    import sys
    import skillrun

    with skillrun.connect() as client:
        for chunk in client.run("calculator", script="scripts/calc.py", args=["2 + 2"]):
            sys.stdout.buffer.write(chunk.data)

Two kinds of failure are kept apart. A program that fails is an outcome, which
``check`` turns into a ProgramError; every other exception says that nothing ran, or
that the daemon, the connection or this side broke. A stream that breaks while a
program runs is attached again, and every byte comes once. A request is sent again only
if it can't have started.
"""

from skillrun.client import Client, connect
from skillrun.errors import (
    AlreadyExists,
    Busy,
    CallError,
    DataLoss,
    DeadlineExceeded,
    Denied,
    ExecutionLost,
    FailedPrecondition,
    InputLost,
    InvalidRequest,
    NotFound,
    ProgramError,
    SkillrunError,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from skillrun.inputs import File, InputError, Limits, Pipe
from skillrun.patience import Patience
from skillrun.run import Chunk, Result, Run
from skillrun.tools import ExecutionResult, ScriptExecutionResult, Tool, ToolResult

__all__ = [
    "AlreadyExists",
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
    "InvalidRequest",
    "Limits",
    "NotFound",
    "Patience",
    "Pipe",
    "ProgramError",
    "Result",
    "Run",
    "ScriptExecutionResult",
    "SkillrunError",
    "Tool",
    "ToolResult",
    "Unauthenticated",
    "Unavailable",
    "Unsupported",
    "connect",
]
