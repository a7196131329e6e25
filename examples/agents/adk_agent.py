"""A Google ADK agent that works with skills.

ADK wraps each function in a FunctionTool: the docstring becomes its description, the
type hints its schema, and the dict that it returns the function's response.
"""

import os
import pathlib
import tempfile
from typing import Any

import skillrun
from skill_tools import INSTRUCTION, skill_tools


def build(client: skillrun.Client, folder: "os.PathLike[str]", model: str = "gemini-2.5-flash") -> Any:
    """Returns an agent whose files lie in a folder."""
    from google.adk.agents import Agent

    return Agent(
        name="skill_agent",
        model=model,
        description="Works with skills, whose scripts run in sandboxes.",
        instruction=INSTRUCTION,
        tools=skill_tools(client, folder),
    )


def __getattr__(name: str) -> Any:
    # `adk run` and `adk web` look for root_agent in the module; it is made when it is
    # asked for, and once.
    if name != "root_agent":
        raise AttributeError(name)
    folder = os.environ.get("SKILL_AGENT_FOLDER") or tempfile.mkdtemp(prefix="skill-agent-")
    globals()[name] = build(skillrun.connect(), pathlib.Path(folder))
    return globals()[name]
