"""A LangChain deepagents agent that works with skills, in one of two ways: with the
tools of skill_tools, for all skills, or with a backend whose `execute` tool runs
the commands of one skill, while the agent's file tools work on the same session.
"""

import base64
import fnmatch
from typing import Any, List, Optional, Tuple

import skillrun
from skill_tools import INSTRUCTION, MOST_CHARACTERS, answer, read, run, skill_tools


def build(client: skillrun.Client, session: str, model: Any = None) -> Any:
    """Returns an agent with the tools of all skills. create_deep_agent takes plain
    functions and makes tools of them, like @tool."""
    from deepagents import create_deep_agent

    return create_deep_agent(model=model, tools=skill_tools(client, session), system_prompt=INSTRUCTION)


def build_with_backend(client: skillrun.Client, skill: str, session: str, model: Any = None) -> Any:
    """Returns an agent that has one skill: its instructions, and an `execute` tool."""
    from deepagents import create_deep_agent

    instructions = client.activate(skill).instructions
    return create_deep_agent(model=model, system_prompt=instructions, backend=backend(client, skill, session))


def backend(client: skillrun.Client, skill: str, session: str) -> Any:
    """Returns a deepagents backend: the session's files are beneath /, and `execute` runs a
    command line in a sandbox, whose working directory has these files. It runs only commands
    that the skill's allowed-tools cover."""
    from deepagents.backends import protocol

    def content(path: str) -> Tuple[bytes, Optional[str]]:
        try:
            return read(client, session, path.lstrip("/")), None
        except skillrun.NotFound:
            return b"", f"File '{path}' not found"

    def put(path: str, data: bytes) -> Optional[str]:
        said = answer(lambda: {"version": client.put_file(session, path.lstrip("/"), data).number})
        return said.get("error")

    def files(beneath: Optional[str]) -> List[Any]:
        prefix = (beneath or "/").strip("/") + "/"
        return [f for f in client.list_files(session) if prefix == "/" or f.path.startswith(prefix)]

    def matches(path: str, pattern: str) -> bool:
        # "**/" also means no directory; fnmatch's "*" crosses directories.
        return any(fnmatch.fnmatchcase(path, p) for p in (pattern.lstrip("/"), pattern.lstrip("/").replace("**/", "")))

    class SkillBackend(protocol.SandboxBackendProtocol):  # type: ignore[misc]
        @property
        def id(self) -> str:
            return f"skillrun-{session}"

        def ls(self, path: str) -> Any:
            prefix, entries = path.strip("/"), {}
            prefix = prefix + "/" if prefix else ""
            for f in files(path):
                name, _, more = f.path[len(prefix) :].partition("/")
                entries[name] = {"path": f"/{prefix}{name}", "is_dir": bool(more), "size": 0 if more else f.size_bytes}
            return protocol.LsResult(entries=list(entries.values()))

        def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> Any:
            data, error = content(file_path)
            if error:
                return protocol.ReadResult(error=error)
            try:
                lines = data.decode().splitlines(keepends=True)
            except UnicodeDecodeError:
                return protocol.ReadResult(file_data={"content": base64.b64encode(data).decode(), "encoding": "base64"})
            first = max(0, offset)
            some = lines[first : first + max(0, limit)]
            got = protocol.ReadResult(file_data={"content": "".join(some), "encoding": "utf-8"})
            if some:
                got.start_line, got.end_line, got.total_lines = first + 1, first + len(some), len(lines)
                got.next_offset = got.end_line if got.end_line < len(lines) else None
            return got

        def write(self, file_path: str, content: str) -> Any:
            error = put(file_path, content.encode())
            return protocol.WriteResult(error=error, path=None if error else file_path)

        def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> Any:
            data, error = content(file_path)
            text = data.decode("utf-8", "surrogateescape")
            count = text.count(old_string) if old_string else 0
            if not error and count == 0:
                error = f"{file_path} does not have {old_string!r}"
            elif not error and count > 1 and not replace_all:
                error = f"{file_path} has {old_string!r} {count} times; give more of the text, or set replace_all"
            if not error:
                error = put(file_path, text.replace(old_string, new_string).encode("utf-8", "surrogateescape"))
            return protocol.EditResult(error=error) if error else protocol.EditResult(path=file_path, occurrences=count)

        def glob(self, pattern: str, path: Optional[str] = None) -> Any:
            base = len((path or "/").strip("/")) + 1 if (path or "/").strip("/") else 0
            found = [f for f in files(path) if matches(f.path[base:], pattern)]
            return protocol.GlobResult(matches=[{"path": "/" + f.path, "is_dir": False, "size": f.size_bytes} for f in found])

        def grep(
            self, pattern: str, path: Optional[str] = None, glob: Optional[str] = None, *, max_count: Optional[int] = None
        ) -> Any:
            found: List[Any] = []
            for f in files(path):
                if glob and not (matches(f.path, glob) or matches(f.path.rpartition("/")[2], glob)):
                    continue
                lines = content(f.path)[0].decode("utf-8", "replace").splitlines()
                found += [{"path": "/" + f.path, "line": n, "text": line} for n, line in enumerate(lines, 1) if pattern in line]
            most = len(found) if max_count is None else max_count
            return protocol.GrepResult(matches=found[:most], truncated=len(found) > most)

        def upload_files(self, files: List[Tuple[str, bytes]]) -> List[Any]:
            return [protocol.FileUploadResponse(path=path, error=put(path, data)) for path, data in files]

        def download_files(self, paths: List[str]) -> List[Any]:
            got = [(path, *content(path)) for path in paths]
            return [
                protocol.FileDownloadResponse(path=path, content=None if error else data, error="file_not_found" if error else None)
                for path, data, error in got
            ]

        def execute(self, command: str, *, timeout: Optional[int] = None) -> Any:
            said = answer(lambda: run(client, session, skill, timeout, command=command))
            output = said.get("stdout", "")
            if said.get("stderr"):
                output = "\n".join([output.rstrip("\n"), said["stderr"]]).lstrip("\n")
            if said.get("error"):
                output = "\n".join(filter(None, [output.rstrip("\n"), said["error"]]))
            # A refused command has no exit code; shells use 126 for that.
            code = said["exit_code"] if said.get("exit_code") is not None else 126
            truncated = any(len(said.get(stream, "")) > MOST_CHARACTERS for stream in ("stdout", "stderr"))
            return protocol.ExecuteResponse(output=output, exit_code=code, truncated=truncated)

    return SkillBackend()
