"""Every call except runs: downloads in pieces, pages, tools."""

import hashlib
import io
import json
import os
import tempfile
import unittest

import grpc
from google.protobuf import struct_pb2

import skillrun
from skillrun.v1 import execution_pb2 as pb
from skillrun.v1 import skill_pb2, tool_pb2

from .fake import Case, abort

CONTENT = bytes(range(256)) * 40
SUM = hashlib.sha256(CONTENT).hexdigest()


def artifact(path="out/a.bin", **fields):
    return pb.Artifact(**{"path": path, "size_bytes": len(CONTENT), "sha256": SUM, **fields})


class Files(Case):
    def pieces(self, breaks, content=CONTENT, described=None):
        """Sends an artifact in pieces, and breaks the stream after two of them a number of times."""
        left = [breaks]

        def get(request, context):
            yield pb.GetArtifactResponse(artifact=described or artifact(), offset_bytes=request.offset_bytes)
            sent = 0
            for at in range(request.offset_bytes, len(content), 1000):
                if sent == 2 and left[0] > 0:
                    left[0] -= 1
                    abort(context, grpc.StatusCode.UNAVAILABLE, "gone")
                yield pb.GetArtifactResponse(offset_bytes=at, data=content[at : at + 1000])
                sent += 1

        return self.daemon(GetArtifact=get)

    def test_download_resumes_where_it_broke(self):
        daemon, client = self.pieces(3)
        to = io.BytesIO()
        got = client.download("x1", artifact(), to)
        self.assertEqual((to.getvalue(), got.sha256), (CONTENT, SUM))
        self.assertEqual(len(daemon.asked("GetArtifact")), 4)

    def test_wrong_bytes_are_data_loss(self):
        for name, content in (("changed", b"x" + CONTENT[1:]), ("too long", CONTENT + b"x")):
            with self.subTest(name):
                daemon, client = self.pieces(0, content)
                with self.assertRaises(skillrun.DataLoss):
                    client.download("x1", "out/a.bin", io.BytesIO())
                self.assertEqual(len(daemon.asked("GetArtifact")), 1)
        _, client = self.pieces(0, CONTENT[:-1])
        with self.assertRaises(skillrun.Unavailable):
            client.download("x1", artifact(), io.BytesIO())

    def test_an_empty_file_is_whole(self):
        empty = artifact(size_bytes=0, sha256=hashlib.sha256(b"").hexdigest())
        _, client = self.pieces(0, b"", empty)
        to = io.BytesIO()
        client.download("x1", empty, to)
        self.assertEqual(to.getvalue(), b"")

    def test_save(self):
        _, client = self.pieces(1)
        with tempfile.TemporaryDirectory() as folder:
            path = client.save("x1", artifact(executable=True), folder + "/new")
            self.assertEqual(path, folder + "/new/out/a.bin")
            with open(path, "rb") as file:
                self.assertEqual(file.read(), CONTENT)
            self.assertTrue(os.access(path, os.X_OK))
            raw = client.save("x1", artifact("bad\ufffd", raw_path=b"bad\xff"), folder)
            self.assertTrue(os.path.exists(os.fsencode(folder) + b"/bad\xff"), raw)
            self.assertEqual(sorted(os.listdir(folder + "/new/out")), ["a.bin"])

    def test_save_stays_in_its_folder(self):
        _, client = self.pieces(0)
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(folder + "/in")
            os.makedirs(folder + "/other")
            os.symlink("../other", folder + "/in/link")
            for path in ("../x", "/etc/x", "a/../../x", "", "a//b", "./x", "link/x"):
                with self.subTest(path), self.assertRaises((skillrun.SkillrunError, OSError)):
                    client.save("x1", artifact(path), folder + "/in")
            self.assertEqual((os.listdir(folder + "/other"), sorted(os.listdir(folder))), ([], ["in", "other"]))
            # A link at the file's path is replaced, not followed.
            os.symlink("../other/target", folder + "/in/last")
            client.save("x1", artifact("last"), folder + "/in")
            self.assertFalse(os.path.islink(folder + "/in/last"))

    def test_a_failed_save_leaves_nothing(self):
        _, client = self.pieces(0, b"x" + CONTENT[1:])
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(skillrun.DataLoss):
                client.save("x1", artifact("a"), folder)
            self.assertEqual(os.listdir(folder), [])

    def test_read_file(self):
        def read(request, context):
            at = request.offset_bytes
            yield skill_pb2.ReadSkillFileResponse(size_bytes=len(CONTENT), sha256=SUM, offset_bytes=at, data=CONTENT[at : at + 5000])
            if at == 0:
                abort(context, grpc.StatusCode.UNAVAILABLE, "gone")
            yield skill_pb2.ReadSkillFileResponse(offset_bytes=at + 5000, data=CONTENT[at + 5000 :])

        _, client = self.daemon(ReadSkillFile=read)
        self.assertEqual(client.read_file("s", "references/R.md"), CONTENT)


class Pages(Case):
    def test_pages_and_retries(self):
        tries = []

        def listing(request, context):
            tries.append(request.page_token)
            if len(tries) == 2:
                abort(context, grpc.StatusCode.UNAVAILABLE, "gone")
            page = int(request.page_token or 0)
            names = [skill_pb2.SkillSummary(name=f"s{page}{i}") for i in range(2)]
            return skill_pb2.ListSkillsResponse(skills=names, next_page_token=str(page + 1) if page < 2 else "")

        _, client = self.daemon(ListSkills=listing)
        self.assertEqual([s.name for s in client.skills()], ["s00", "s01", "s10", "s11", "s20", "s21"])
        self.assertEqual(tries, ["", "1", "1", "2"])

    def test_a_list_without_end(self):
        _, client = self.daemon(ListSkills=lambda request, context: skill_pb2.ListSkillsResponse(next_page_token="more"))
        with self.assertRaises(skillrun.CallError) as caught:
            list(client.skills())
        self.assertIn("page without entries", str(caught.exception))

    def test_more_artifacts_than_the_outcome_has(self):
        execution = pb.Execution(outcome=pb.ExecutionOutcome(artifact_count=3))
        page = pb.ListArtifactsResponse(artifacts=[artifact("a"), artifact("b")], next_page_token="again")
        _, client = self.daemon(GetExecution=lambda request, context: execution, ListArtifacts=lambda request, context: page)
        found = []
        with self.assertRaises(skillrun.CallError) as caught:
            for each in client.artifacts("e1"):
                found.append(each.path)
                self.assertLess(len(found), 4)
        self.assertEqual(found, ["a", "b", "a"])
        self.assertIn("more artifacts than the outcome has", str(caught.exception))

    def test_fewer_artifacts_than_the_outcome_has(self):
        execution = pb.Execution(outcome=pb.ExecutionOutcome(artifact_count=3))
        page = pb.ListArtifactsResponse(artifacts=[artifact("a"), artifact("b")])
        _, client = self.daemon(GetExecution=lambda request, context: execution, ListArtifacts=lambda request, context: page)
        found = []
        with self.assertRaises(skillrun.CallError) as caught:
            found.extend(each.path for each in client.artifacts("e1"))
        self.assertIn("fewer artifacts than the outcome has", str(caught.exception))

    def test_a_delay_longer_than_any_clock(self):
        for delay in (1.5, 9e13):
            def busy(request, context):
                abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "full", "SATURATED", retry=delay)

            _, client = self.daemon(GetSkill=busy)
            with self.assertRaises(skillrun.Busy) as caught:
                client.skill("s")
            self.assertEqual(caught.exception.retry_after, delay)


class Tools(Case):
    def test_run_python_script_gives_the_contracts_object(self):
        for reply, want in (
            (
                {"skill_name": "s", "stdout": "", "stderr": "", "returncode": 0},
                {"skill_name": "s", "stdout": "", "stderr": "", "returncode": 0},
            ),
            ({"error": "no"}, {"error": "no"}),
        ):
            _, client = self.daemon(RunPythonScript=lambda r, c: tool_pb2.RunPythonScriptResponse(**reply))
            self.assertEqual(client.run_python_script("s", "pass"), want)

    def test_execute_script(self):
        def execute(request, context):
            context.send_initial_metadata([("skillrun-execution-id", "x7")])
            return tool_pb2.ExecuteScriptResponse(exit_code=-11, signal="SIGSEGV", signal_number=11, script_path="scripts/a.py", signaled=True)

        daemon, client = self.daemon(ExecuteScript=execute)
        got = client.execute_script("s", "scripts/a.py", {"b": 1, "a": "é"}, timeout=2.5)
        self.assertEqual((got.exit_code, got.signal, got.signal_number, got.signaled, got.execution_id), (-11, "SIGSEGV", 11, True, "x7"))
        (request,) = daemon.asked("ExecuteScript")
        self.assertEqual((request.arguments_json, request.timeout.ToMilliseconds()), ('{"b": 1, "a": "é"}', 2500))

    def test_an_exception_of_the_contract_is_named(self):
        _, client = self.daemon(
            ExecuteScript=lambda r, c: abort(
                c, grpc.StatusCode.INVALID_ARGUMENT, "Path traversal", "SKILL_PATH_ESCAPES", metadata={"error": "PathSecurityError"}
            )
        )
        with self.assertRaises(skillrun.PathSecurityError) as caught:
            client.execute_script("s", "../x")
        self.assertEqual(caught.exception.metadata["error"], "PathSecurityError")
        self.assertIsInstance(caught.exception, skillrun.InvalidRequest)

    def test_every_exception_of_the_contract_is_raised_by_its_name(self):
        for name, builtin in (
            ("PathSecurityError", None),
            ("ScriptPermissionError", None),
            ("InterpreterNotFoundError", None),
            ("ArgumentSerializationError", None),
            ("ArgumentSizeError", None),
            ("FileNotFoundError", FileNotFoundError),
            ("ValueError", ValueError),
            ("OSError", OSError),
        ):
            with self.subTest(name):
                _, client = self.daemon(
                    ExecuteScript=lambda r, c: abort(c, grpc.StatusCode.INVALID_ARGUMENT, "why: it", "REASON", metadata={"error": name})
                )
                with self.assertRaises(builtin or getattr(skillrun, name)) as caught:
                    client.execute_script("s", "x")
                self.assertIsInstance(caught.exception, skillrun.CallError)
                self.assertEqual((type(caught.exception).__name__, str(caught.exception)), (name, "REASON: why: it"))

    def test_arguments_that_are_no_json_are_the_contract_s_exception(self):
        _, client = self.daemon()
        circle = {}
        circle["x"] = circle
        for arguments, why in ((circle, "Circular reference detected"), ({"x": {1}}, "not JSON serializable"), ({"x": "\ud800"}, "surrogate")):
            with self.assertRaisesRegex(skillrun.ArgumentSerializationError, "^ARGUMENT_SERIALIZATION_ERROR: Cannot serialize arguments: .*" + why):
                client.execute_script("s", "a.py", arguments)

    def test_tools_are_never_sent_twice(self):
        daemon, client = self.daemon(ExecuteCommand=lambda r, c: abort(c, grpc.StatusCode.UNAVAILABLE, "Socket closed"))
        with self.assertRaises(skillrun.Unavailable):
            client.execute_command("s", "ls")
        self.assertEqual(len(daemon.asked("ExecuteCommand")), 1)

    def test_execute_command_and_run_python(self):
        _, client = self.daemon(
            ExecuteCommand=lambda r, c: tool_pb2.ExecuteCommandResponse(exit_code=-1, command=r.command, error="Command not allowed"),
            RunPython=lambda r, c: tool_pb2.RunPythonResponse(text="Stdout:\n" + r.code),
        )
        got = client.execute_command("s", "rm x")
        self.assertEqual((got.success, got.exit_code, got.error, got.execution_id), (False, -1, "Command not allowed", ""))
        self.assertEqual(client.run_python("1"), "Stdout:\n1")

    def test_answers_may_be_large(self):
        large = "x" * (20 << 20)
        _, client = self.daemon(RunPython=lambda r, c: tool_pb2.RunPythonResponse(text=large))
        self.assertEqual(len(client.run_python("1")), len(large))

    def test_prepare(self):
        def prepare(request, context):
            yield skill_pb2.PrepareSkillResponse(output=pb.OutputChunk(stream=pb.OUTPUT_STREAM_STDERR, data=b"building"))
            if request.skill == "s":
                yield skill_pb2.PrepareSkillResponse(environment=skill_pb2.SkillEnvironment(digest="sha256:1", packages=["a==1"]))
                yield skill_pb2.PrepareSkillResponse(environment=skill_pb2.SkillEnvironment(digest="sha256:2", python="node 20.20.2"))

        daemon, client = self.daemon(PrepareSkill=prepare)
        seen = []
        got = client.prepare("s", rebuild=True, on_output=lambda chunk: seen.append((chunk.stream, chunk.text)))
        self.assertEqual([(env.digest, list(env.packages)) for env in got], [("sha256:1", ["a==1"]), ("sha256:2", [])])
        self.assertEqual(seen, [("stderr", "building")])
        self.assertTrue(daemon.asked("PrepareSkill")[0].rebuild)
        with self.assertRaises(skillrun.CallError) as caught:
            client.prepare("other")
        self.assertIn("ended without its environment", str(caught.exception))

    def test_list_and_call(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 600}}}
        definition = {"type": "function", "function": {"name": "t", "description": "d", "parameters": schema}}
        parameters = struct_pb2.Struct()
        parameters.update(schema)

        def call(request, context):
            yield tool_pb2.CallToolResponse(output=pb.OutputChunk(stream=pb.OUTPUT_STREAM_STDOUT, data=b"hi"))
            result = tool_pb2.ToolResult(content="done", execution_id="x1")
            result.structured.update({"n": 3, "f": 1.5})
            yield tool_pb2.CallToolResponse(result=result)

        daemon, client = self.daemon(
            ListTools=lambda r, c: tool_pb2.ListToolsResponse(
                tools=[
                    tool_pb2.Tool(name="t", description="d", parameters=parameters, definition_json=json.dumps(definition)),
                    tool_pb2.Tool(name="u", parameters=parameters),
                ]
            ),
            CallTool=call,
        )
        first, second = client.list_tools()
        self.assertEqual((first.definition, first.parameters, second.parameters), (definition, schema, schema))
        seen = []
        result = client.call_tool("t", {"n": 1}, on_output=lambda chunk: seen.append((chunk.stream, chunk.text)))
        self.assertEqual((result.content, result.structured, result.is_error, seen), ("done", {"n": 3, "f": 1.5}, False, [("stdout", "hi")]))
        self.assertEqual(daemon.asked("CallTool")[0].arguments_json, '{"n": 1}')


if __name__ == "__main__":
    unittest.main()


class Sizes(Case):
    def test_arguments_of_a_script_have_the_contract_s_bound(self):
        sent = []

        def execute(request, context):
            sent.append(len(request.arguments_json))
            return tool_pb2.ExecuteScriptResponse()

        _, client = self.daemon(ExecuteScript=execute)
        frame = len('{"x": ""}')
        client.execute_script("s", "a.py", {"x": "a" * (10_000_000 - frame)})
        self.assertEqual(sent, [10_000_000])
        for size in (10_000_001, 20_000_000):  # a daemon would not read the second one
            with self.assertRaises(skillrun.InvalidRequest) as caught:
                client.execute_script("s", "a.py", {"x": "a" * (size - frame)})
            self.assertEqual(caught.exception.message, f"Arguments too large: {size} bytes (max 10MB)")
            self.assertEqual(caught.exception.metadata, {"error": "ArgumentSizeError"})
            self.assertEqual((caught.exception.reason, caught.exception.field), ("ARGUMENT_SIZE_ERROR", "arguments"))
        self.assertEqual(len(sent), 1)

    def test_a_message_that_is_too_large_says_what_to_do(self):
        def refuse(request, context):  # like the daemon's gRPC library
            abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "grpc: received message larger than max (17825797 vs. 16777216)")

        daemon, client = self.daemon(RunPython=refuse, Execute=refuse)
        with self.assertRaises(skillrun.InvalidRequest) as caught:
            client.run_python("#")
        self.assertEqual(caught.exception.reason, "MESSAGE_TOO_LARGE")
        self.assertEqual(caught.exception.metadata, {"maxMessageBytes": str(16 << 20)})
        self.assertIn("as files", caught.exception.message)
        with self.assertRaises(skillrun.InvalidRequest) as caught:
            client.run("s", code="#")
        self.assertEqual(caught.exception.reason, "MESSAGE_TOO_LARGE")
        self.assertEqual(len(daemon.asked("Execute")), 1)  # not repeated, because it would be too large again

    def test_half_a_character_is_no_argument(self):
        _, client = self.daemon()
        for arguments in ({"x": "\ud800"}, {"\udfff": 1}, '{"x": "\ud800"}'):
            for call in (
                lambda a: client.call_tool("t", a),
                lambda a: client.run("s", script="a.py", json_arguments=a),
            ):
                with self.subTest(repr(arguments)), self.assertRaisesRegex(skillrun.InputError, "half of a surrogate pair"):
                    call(arguments)
        with self.assertRaises(skillrun.InputError):
            client.call_tool("t", {"x": float("nan")})
