"""A LangChain deepagents agent that works with skills, in one of two ways: with the
tools of skill_tools, for all skills, or with a backend whose `execute` tool runs
the commands of one skill, while the agent's file tools work on the same folder.
"""

import os
import pathlib
import uuid
from typing import Any, Optional

import skillrun
from skill_tools import INSTRUCTION, MOST_CHARACTERS, answer, run, skill_tools


def build(client: skillrun.Client, folder: "os.PathLike[str]", model: Any = None) -> Any:
    """Returns an agent with the tools of all skills. create_deep_agent takes plain
    functions and makes tools of them, like @tool."""
    from deepagents import create_deep_agent

    return create_deep_agent(model=model, tools=skill_tools(client, folder), system_prompt=INSTRUCTION)


def build_with_backend(client: skillrun.Client, skill: str, folder: "os.PathLike[str]", model: Any = None) -> Any:
    """Returns an agent that has one skill: its instructions, and an `execute` tool."""
    from deepagents import create_deep_agent

    instructions = client.activate(skill).instructions
    return create_deep_agent(model=model, system_prompt=instructions, backend=backend(client, skill, folder))


def backend(client: skillrun.Client, skill: str, folder: "os.PathLike[str]") -> Any:
    """Returns a deepagents backend: files lie in the folder, which the file tools show as
    /, and `execute` runs a command line in a sandbox that starts in a copy of it. Only
    commands that the skill's allowed-tools cover run."""
    from deepagents.backends.filesystem import FilesystemBackend
    from deepagents.backends.protocol import ExecuteResponse, SandboxBackendProtocol

    root = pathlib.Path(folder)

    class SkillBackend(FilesystemBackend, SandboxBackendProtocol):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(root_dir=str(root), virtual_mode=True)
            self._id = f"skillrun-{skill}-{uuid.uuid4().hex[:8]}"

        @property
        def id(self) -> str:
            return self._id

        def execute(self, command: str, *, timeout: Optional[int] = None) -> Any:
            said = answer(lambda: run(client, root, skill, timeout, command=command))
            output = said.get("stdout", "")
            if said.get("stderr"):
                output = "\n".join([output.rstrip("\n"), said["stderr"]]).lstrip("\n")
            if said.get("error"):
                output = "\n".join(filter(None, [output.rstrip("\n"), said["error"]]))
            # A refused command has no exit code; shells use 126 for that.
            code = said["exit_code"] if said.get("exit_code") is not None else 126
            truncated = any(len(said.get(stream, "")) > MOST_CHARACTERS for stream in ("stdout", "stderr"))
            return ExecuteResponse(output=output, exit_code=code, truncated=truncated)

    return SkillBackend()
