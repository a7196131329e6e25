"""A Google ADK agent that works with skills.

ADK wraps each function in a FunctionTool: the docstring becomes its description, the
type hints its schema, and the dict that it returns the function's response.
"""

import os
from typing import Any, Callable

import skillrun
from skill_tools import INSTRUCTION, skill_tools


def build(client: skillrun.Client, session: str, model: str = "gemini-2.5-flash") -> Any:
    """Returns an agent whose files are in a session."""
    from google.adk.agents import Agent

    return Agent(
        name="skill_agent",
        model=model,
        description="Works with skills, whose scripts run in sandboxes.",
        instruction=INSTRUCTION,
        tools=skill_tools(client, session),
    )


def bash_tool(client: skillrun.Client, skill: str) -> Callable[[str], str]:
    """Returns the Bash tool of the Agent Skills specification's ADK integration, for the
    skill that an agent has activated. It returns the output, or "Error: ..." with stderr."""

    def Bash(command: str) -> str:
        """Execute bash commands (restricted by skill permissions).

        Args:
            command: The command line; {baseDir} in it is the skill's folder.
        """
        result = client.execute_command(skill, command)
        if not result.success:
            return f"Error: {result.error}\n{result.stderr}"
        return result.stdout

    return Bash


def __getattr__(name: str) -> Any:
    # `adk run` and `adk web` look for root_agent in the module. It is created once, on
    # first use.
    if name != "root_agent":
        raise AttributeError(name)
    client = skillrun.connect()
    session = os.environ.get("SKILL_AGENT_SESSION") or client.create_session(labels={"agent": "adk"}).session_id
    globals()[name] = build(client, session)
    return globals()[name]
