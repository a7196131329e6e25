"""Function tools that let an agent work with skills, for any framework that takes plain
Python functions. Such a framework reads name, docstring and type hints, calls the function
with keyword arguments, and gives its result to the model as JSON.
"""

# No `from __future__ import annotations`: some frameworks need type hints, not strings.
import io
from typing import Any, Callable, Dict, List, Optional

import skillrun

# The maximum number of characters of each stream that a model gets. Longer texts would
# cost more tokens than they help.
MOST_CHARACTERS = 30_000

# The system prompt for an agent, in addition to the tools' descriptions.
INSTRUCTION = """You have skills: folders of instructions and scripts for certain tasks.
Call list_skills, and before you use a skill activate it and follow its instructions.
Run its scripts with run_skill_script, and the command lines that its instructions show
with bash. Both run in a sandbox and start in a folder with your files: the files of
write_file and of earlier calls. "files" lists the files that a call wrote."""


def skill_tools(client: skillrun.Client, session: str) -> List[Callable[..., Dict[str, Any]]]:
    """Returns the tools of one conversation. Its files are in a session, given by its id:
    client.create_session().session_id."""

    def list_skills() -> Dict[str, Any]:
        """List the skills that can be used: the name and the description of each."""
        return {"skills": [{"name": s.name, "description": s.description} for s in client.skills()]}

    def activate_skill(skill: str) -> Dict[str, Any]:
        """Read the instructions of a skill. Do this before working with it.

        Args:
            skill: Name of the skill.
        """
        return answer(lambda: _activation(client, skill))

    def read_skill_file(skill: str, path: str) -> Dict[str, Any]:
        """Read a text file of a skill that its instructions name.

        Args:
            skill: Name of the skill.
            path: Path in the skill, such as references/REFERENCE.md.
        """
        return answer(lambda: {"text": cut(client.read_file(skill, path).decode("utf-8", "replace"))})

    def run_skill_script(
        skill: str,
        script_path: str,
        args: Optional[List[str]] = None,
        arguments: Optional[Dict[str, Any]] = None,
        timeout_seconds: Optional[int] = None,
    ) -> Dict[str, Any]:
        """Run a script of a skill in a sandbox.

        Args:
            skill: Name of the skill.
            script_path: Path of the script in the skill, such as scripts/extract.py.
            args: Command line arguments, one string for each.
            arguments: JSON object for the script's standard input, if it reads one.
            timeout_seconds: How long it may take; the skill's own limit if left out.
        """
        return answer(
            lambda: run(client, session, skill, timeout_seconds, script=script_path, args=args or [], json_arguments=arguments)
        )

    def bash(skill: str, command: str, timeout_seconds: Optional[int] = None) -> Dict[str, Any]:
        """Run a command line that the skill's allowed-tools cover, in a sandbox.

        Pipes, &&, ||, ; and redirects work; expansions do not.

        Args:
            skill: Name of the skill.
            command: The command line; {baseDir} in it is the skill's folder.
            timeout_seconds: How long it may take; the skill's own limit if left out.
        """
        return answer(lambda: run(client, session, skill, timeout_seconds, command=command))

    def write_file(path: str, text: str) -> Dict[str, Any]:
        """Write a text file that later calls find in their folder.

        Args:
            path: Relative path of the file, such as data/in.csv.
            text: Its content.
        """
        return answer(lambda: _written(client, session, path, text))

    def read_file(path: str) -> Dict[str, Any]:
        """Read a text file that write_file or another call has written.

        Args:
            path: Relative path of the file.
        """
        return answer(lambda: {"text": cut(read(client, session, path).decode("utf-8", "replace"))})

    def list_files() -> Dict[str, Any]:
        """List the files that write_file and other calls have written."""
        return answer(lambda: {"files": [{"path": f.path, "size_bytes": f.size_bytes} for f in client.list_files(session)]})

    return [list_skills, activate_skill, read_skill_file, run_skill_script, bash, write_file, read_file, list_files]


def run(client: skillrun.Client, session: str, skill: str, timeout: Optional[int], **what: Any) -> Dict[str, Any]:
    """Runs one program in the session. If it succeeds, its changes stay there."""
    limits = skillrun.Limits(wall_time=timeout) if timeout else None
    with client.run(skill, session=skillrun.Session(session, wait=True), limits=limits, **what) as execution:
        result = execution.result()
        saved = [artifact.path for artifact in execution.artifacts()]
    said: Dict[str, Any] = {
        "status": "success" if result.ok else "error",
        "exit_code": result.exit_code,
        "stdout": cut(result.text),
        "stderr": cut(result.stderr.decode("utf-8", "replace")),
        "files": saved,
    }
    if result.ok and result.outcome.session.reason:
        said["not_kept"] = result.outcome.session.reason
    if not result.ok:
        said["error"] = execution.end + (f": {result.outcome.advice}" if result.outcome.advice else "")
    return said


def read(client: skillrun.Client, session: str, path: str) -> bytes:
    """Returns the content of a file of the session."""
    content = io.BytesIO()
    client.get_file(session, path, content)
    return content.getvalue()


def answer(call: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    """Converts errors that a model can correct into results. If the daemon is missing or
    fails, the exception reaches the operator of the agent."""
    try:
        return call()
    except (skillrun.InvalidRequest, skillrun.NotFound, skillrun.Denied, skillrun.FailedPrecondition) as error:
        return {"status": "error", "error": error.message, "reason": error.reason}
    except skillrun.Busy as error:
        return {"status": "error", "error": error.message, "reason": error.reason, "retry_after_seconds": error.retry_after}


def cut(text: str) -> str:
    """Keeps the beginning and the end of a long text, and says how much is missing."""
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _written(client: skillrun.Client, session: str, path: str, text: str) -> Dict[str, Any]:
    client.put_file(session, path, text.encode())
    return {"path": path, "size_bytes": len(text.encode())}


def _activation(client: skillrun.Client, skill: str) -> Dict[str, Any]:
    active = client.activate(skill)
    return {
        "name": active.name,
        "instructions": active.instructions,
        "allowed_tools": list(active.allowed_tools),
        "scripts": [script.path for script in client.skill(skill).scripts],
    }
