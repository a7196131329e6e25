"""The agents' tools against a real daemon. Stand-ins call the tools as the frameworks do.
The Go test of cmd/skillrund starts the daemon."""

import json
import os
import unittest

import skillrun
import standins

standins.install()

import adk_agent
import deepagents_agent
import skill_tools

NAMES = ["list_skills", "activate_skill", "read_skill_file", "run_skill_script", "bash", "write_file", "read_file", "list_files"]
PEOPLE = "name,age\nAda,36\nLinus,12\n"
FILTER = 'python {baseDir}/scripts/process.py people.csv --filter "age > 30" --output adults.csv'


class Agents(unittest.TestCase):
    def setUp(self):
        self.client = skillrun.connect()
        self.addCleanup(self.client.close)
        self.session = self.client.create_session().session_id
        self.addCleanup(self.client.delete_session, self.session)


class Schemas(Agents):
    def test_what_a_model_is_shown(self):
        tools = {d["name"]: d for d in map(standins.declare, skill_tools.skill_tools(self.client, self.session))}
        self.assertEqual(list(tools), NAMES)
        want = {
            "type": "object",
            "properties": {
                "skill": {"type": "string"},
                "script_path": {"type": "string"},
                "args": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
                "arguments": {"anyOf": [{"type": "object"}, {"type": "null"}], "default": None},
                "timeout_seconds": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            },
            "required": ["skill", "script_path"],
        }
        self.assertEqual(tools["run_skill_script"]["parameters"], want)
        self.assertEqual(tools["bash"]["parameters"]["required"], ["skill", "command"])
        for tool in tools.values():
            for name in tool["parameters"]["properties"]:
                self.assertIn(f"{name}: ", tool["description"], f"{tool['name']} says nothing of {name}")


class ADK(Agents):
    def setUp(self):
        super().setUp()
        self.agent = adk_agent.build(self.client, self.session)

    def test_a_conversation(self):
        call = self.agent.call
        self.assertEqual([tool.name for tool in self.agent.tools], NAMES)
        skills = call("list_skills", {})["skills"]
        self.assertIn("csv-processor", [skill["name"] for skill in skills])
        active = call("activate_skill", {"skill": "csv-processor"})
        self.assertIn("/skills/csv-processor/scripts/process.py", active["instructions"])
        self.assertIn("scripts/process.py", active["scripts"])
        self.assertEqual(call("write_file", {"path": "people.csv", "text": PEOPLE}), {"path": "people.csv", "size_bytes": len(PEOPLE)})
        got = call("bash", {"skill": "csv-processor", "command": FILTER})
        self.assertEqual((got["status"], got["exit_code"], got["files"]), ("success", 0, ["adults.csv"]))
        # The second call reads a file that the first one wrote.
        got = call("run_skill_script", {"skill": "csv-processor", "script_path": "scripts/process.py", "args": ["adults.csv", "--format", "json"]})
        self.assertEqual(json.loads(got["stdout"])[0]["name"], "Ada")
        self.assertEqual(call("read_file", {"path": "adults.csv"}), {"text": "name,age\nAda,36\n"})
        self.assertEqual([file["path"] for file in call("list_files", {})["files"]], ["adults.csv", "people.csv"])

    def test_what_a_model_can_act_on_is_a_result(self):
        for name, args, status, text in (
            ("bash", {"skill": "csv-processor", "command": "rm -rf /"}, "error", "rm"),
            ("bash", {"skill": "nobody", "command": "ls"}, "error", "nobody"),
            ("run_skill_script", {"skill": "calculator", "script_path": "../x.py"}, "error", "x.py"),
            ("run_skill_script", {"skill": "calculator", "script_path": "scripts/calc.py", "args": ["2 +"]}, "error", "exited"),
            ("run_skill_script", {"skill": "calculator", "script_path": "scripts/calc.py", "timeout_seconds": 9999}, "error", "wall_time"),
            ("activate_skill", {"skill": "nobody"}, "error", "nobody"),
            ("read_skill_file", {"skill": "calculator", "path": "../../etc/passwd"}, "error", "etc/passwd"),
            ("bash", {"skill": "calculator"}, None, "mandatory"),
            ("read_file", {"path": "none.csv"}, "error", "none.csv"),
            ("write_file", {"path": "../x", "text": ""}, "error", ".."),
        ):
            with self.subTest(f"{name} {args}"):
                got = self.agent.call(name, args)
                self.assertEqual(got.get("status"), status)
                self.assertIn(text, got["error"])

    def test_a_daemon_that_is_away_is_not_the_models_business(self):
        with skillrun.connect("unix:///nowhere/s.sock") as client:
            with self.assertRaises(skillrun.Unavailable):
                adk_agent.build(client, self.session).call("list_skills", {})

    def test_json_arguments_and_long_output(self):
        got = self.agent.call("run_skill_script", {"skill": "py", "script_path": "scripts/echo.py", "arguments": {"a": "é"}})
        self.assertEqual(got["stdout"].split("\n", 1)[1], '{"a": "é"}')
        got = self.agent.call("run_skill_script", {"skill": "py", "script_path": "scripts/echo.py", "args": ["x" * 50_000]})
        self.assertIn("characters left out", got["stdout"])
        self.assertLess(len(got["stdout"]), 31_000)

    def test_the_published_bash_tool(self):
        agent = standins.Agent(name="one", model="none", tools=[adk_agent.bash_tool(self.client, "calculator")])
        (tool,) = agent.tools
        self.assertEqual((tool.name, tool.declaration["parameters"]["required"]), ("Bash", ["command"]))
        for command, want in (
            ("python {baseDir}/scripts/calc.py '6 * 7'", "42\n"),
            ("rm x", "Error: Command not allowed by skill permissions: rm x\n..."),
        ):
            got = agent.call("Bash", {"command": command})["result"]
            if want.endswith("..."):
                want, got = want[:-3], got[: len(want) - 3]
            self.assertEqual(got, want)
        failed = agent.call("Bash", {"command": "python {baseDir}/scripts/calc.py '2 +'"})["result"]
        self.assertTrue(failed.startswith("Error: Command failed with exit code 2\n"), failed)

    def test_a_failed_program_leaves_nothing(self):
        self.agent.call("write_file", {"path": "in.csv", "text": PEOPLE})
        got = self.agent.call("bash", {"skill": "csv-processor", "command": FILTER})
        self.assertEqual((got["status"], got["files"]), ("error", []))
        self.assertEqual([file["path"] for file in self.agent.call("list_files", {})["files"]], ["in.csv"])

    def test_root_agent(self):
        os.environ["SKILL_AGENT_SESSION"] = self.session
        self.addCleanup(os.environ.pop, "SKILL_AGENT_SESSION")
        self.assertEqual(adk_agent.root_agent.name, "skill_agent")
        self.assertIs(adk_agent.root_agent, adk_agent.root_agent)
        with self.assertRaises(AttributeError):
            adk_agent.other


class DeepAgents(Agents):
    def test_with_tools(self):
        agent = deepagents_agent.build(self.client, self.session)
        self.assertEqual(list(agent.tools), NAMES)
        agent.call("write_file", {"path": "people.csv", "text": PEOPLE})
        got = json.loads(agent.call("bash", {"skill": "csv-processor", "command": FILTER}))
        self.assertEqual((got["status"], got["files"]), ("success", ["adults.csv"]))
        got = json.loads(agent.call("run_skill_script", {"skill": "calculator", "script_path": "scripts/calc.py", "args": ["6 * 7"]}))
        self.assertEqual(got["stdout"].strip().split()[-1], "42")

    def test_with_a_backend(self):
        agent = deepagents_agent.build_with_backend(self.client, "csv-processor", self.session)
        self.assertIn("/skills/csv-processor", agent.system_prompt)
        backend = deepagents_agent.backend(self.client, "csv-processor", self.session)
        self.assertIn(self.session, backend.id)
        self.assertEqual(backend.write("/people.csv", PEOPLE).path, "/people.csv")
        got = agent.call("execute", {"command": FILTER, "timeout": 20})
        self.assertTrue(got.endswith("[Command succeeded with exit code 0]"), got)
        self.assertEqual(backend.read("/adults.csv").file_data, {"content": "name,age\nAda,36\n", "encoding": "utf-8"})
        got = agent.call("execute", {"command": "cat /etc/passwd"})
        self.assertTrue(got.endswith("[Command failed with exit code 126]"), got)
        self.assertIn("cat", got)
        got = agent.call("execute", {"command": FILTER.replace("people.csv", "none.csv")})
        self.assertIn("none.csv", got)
        self.assertIn("Command failed", got)

    def test_the_backends_files(self):
        backend = deepagents_agent.backend(self.client, "csv-processor", self.session)
        uploaded = backend.upload_files([("/a.txt", b"1\n2\n3\n"), ("/d/b.md", b"2 + 2\n"), ("/d/c.bin", b"\0\xff"), ("/../x", b"")])
        self.assertEqual([bool(r.error) for r in uploaded], [False, False, False, True])
        self.assertEqual([(e["path"], e["is_dir"], e["size"]) for e in backend.ls("/").entries], [("/a.txt", False, 6), ("/d", True, 0)])
        self.assertEqual([e["path"] for e in backend.ls("/d").entries], ["/d/b.md", "/d/c.bin"])
        part = backend.read("/a.txt", offset=1, limit=1)
        self.assertEqual((part.file_data["content"], part.start_line, part.end_line, part.total_lines, part.next_offset), ("2\n", 2, 2, 3, 2))
        self.assertEqual(backend.read("/a.txt", offset=2).next_offset, None)
        self.assertEqual(backend.read("/a.txt", limit=0).file_data["content"], "")
        self.assertEqual(backend.read("/d/c.bin").file_data, {"content": "AP8=", "encoding": "base64"})
        self.assertIn("not found", backend.read("/none").error)
        self.assertEqual(backend.edit("/d/b.md", "2", "3", replace_all=True).occurrences, 2)
        for old in ("3", "4"):
            self.assertIn(f"{old!r}", backend.edit("/d/b.md", old, "5").error)
        self.assertIn("not found", backend.edit("/none", "1", "2").error)
        self.assertEqual([m["path"] for m in backend.glob("*.md", "/d").matches], ["/d/b.md"])
        self.assertEqual([m["path"] for m in backend.glob("**/*.txt").matches], ["/a.txt"])
        self.assertEqual(backend.grep("3").matches, [{"path": "/a.txt", "line": 3, "text": "3"}, {"path": "/d/b.md", "line": 1, "text": "3 + 3"}])
        self.assertEqual((backend.grep("3", max_count=1).truncated, len(backend.grep("3", "/d", "*.md").matches)), (True, 1))
        got = backend.download_files(["/d/c.bin", "/none"])
        self.assertEqual([(r.content, r.error) for r in got], [(b"\0\xff", None), (None, "file_not_found")])


if __name__ == "__main__":
    unittest.main()
