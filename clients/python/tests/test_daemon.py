"""The client against a real daemon, which the Go test starts. SKILLRUN_ADDRESS is its
socket, SKILLRUN_TCP its TCP address. The skill "py" is the Go test's."""

import concurrent.futures
import datetime
import hashlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid

import skillrun
from skillrun.v1 import execution_pb2 as pb
from skillrun.v1 import session_pb2

from .proxy import Proxy

# Eight times, prints a block on each stream, says that it is done, and waits for a signal.
# The output after a cut is printed while no client is connected.
BLOCKS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for i in range(8):
    for n in range(500):
        print(f"out {i} {n}")
        print(f"err {i} {n}", file=sys.stderr)
    sys.stderr.flush()
    print(f"done {i}", flush=True)
    signal.sigwait([signal.SIGUSR1])
"""


class Daemon(unittest.TestCase):
    def setUp(self):
        self.client = skillrun.connect()
        self.addCleanup(self.client.close)

    def of(self, label):
        return list(self.client.executions(labels={"test": label}))

    def label(self):
        return f"{self.id().rsplit('.', 1)[-1][:40]}-{uuid.uuid4().hex[:8]}"


class Running(Daemon):
    def test_a_script_prints(self):
        text = b""
        for chunk in self.client.run("calculator", script="scripts/calc.py", args=["2 + 2"]):
            self.assertEqual(chunk.stream, "stdout")
            text += chunk.data
        self.assertEqual(text.strip().split()[-1], b"4")

    def test_output_is_live(self):
        pipe = skillrun.Pipe()
        seen = ""
        with self.client.run_code("calculator", "for i in range(3):\n print(i)\n input()", stdin=pipe) as run:
            for chunk in run:
                seen += chunk.text
                if seen.endswith("\n"):
                    pipe.write(b"\n")
        self.assertEqual((seen, run.exit_code, run.end), ("0\n1\n2\n", 0, "exited"))

    def test_ends(self):
        for code, limits, exit_code, kind, text in (
            ("import sys; sys.exit(3)", None, 3, skillrun.ProgramError, "exit status 3"),
            ("import os; os.kill(os.getpid(), 9)", None, -9, skillrun.ProgramError, "signal: SIGKILL"),
            ("while True: pass", skillrun.Limits(wall_time=0.5), 124, skillrun.ProgramError, "timed out: wall time"),
        ):
            with self.subTest(text):
                run = self.client.run_code("calculator", code, limits=limits)
                with self.assertRaises(kind) as caught:
                    run.check()
                self.assertTrue(str(caught.exception).startswith(text), caught.exception)
                self.assertEqual((run.exit_code, run.header.skill), (exit_code, "calculator"))

    def test_both_streams_and_a_command(self):
        result = self.client.run_code("py", "echo out; echo err >&2", "bash").result().check()
        self.assertEqual((result.stdout, result.stderr), (b"out\n", b"err\n"))
        result = self.client.run_command("py", "printf '%s-' 'a b' '$HOME'").result()
        self.assertEqual(result.stdout, b"a b-$HOME-")

    def test_input(self):
        read = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
        large = os.urandom(2 << 20)
        for name, options, want in (
            ("nothing", {}, b""),
            ("bytes", {"stdin": b"a\x00b"}, b"a\x00b"),
            ("text", {"stdin": "é"}, "é".encode()),
            ("JSON", {"json_arguments": {"b": "é", "a": [1, 2.5, None]}}, '{"b": "é", "a": [1, 2.5, null]}'.encode()),
            ("large", {"stdin": large}, large),
            ("a file", {"stdin": io.BytesIO(large)}, large),
            ("pieces", {"stdin": (b"%d," % i for i in range(3))}, b"0,1,2,"),
            ("with a key", {"stdin": io.BytesIO(b"keyed"), "idempotency_key": uuid.uuid4().hex}, b"keyed"),
        ):
            with self.subTest(name):
                self.assertEqual(self.client.run_code("py", read, **options).result().check().stdout, want)

    def test_files_small_and_large(self):
        large = os.urandom(5 << 20)
        code = "import hashlib, os, sys\nfor p in sys.argv[1:]: print(hashlib.sha256(open(p, 'rb').read()).hexdigest(), os.access(p, os.X_OK))"
        with tempfile.NamedTemporaryFile() as file:
            file.write(large)
            file.flush()
            files = {"in/large": pathlib.Path(file.name), "small": skillrun.File(b"abc", executable=True), "bytes": large[: 2 << 20]}
            result = self.client.run_code("py", code, args=list(files), files=files).result().check()
        wants = [large, b"abc", large[: 2 << 20]]
        want = "".join(f"{hashlib.sha256(data).hexdigest()} {i == 1}\n" for i, data in enumerate(wants))
        self.assertEqual(result.text, want)

    def test_a_session_keeps_files(self):
        sessions = self.client.session_service
        made = sessions.CreateSession(session_pb2.CreateSessionRequest()).session
        use = skillrun.Session(made.session_id)
        self.client.run_code("calculator", "open('a.txt', 'w').write('first')", session=use).wait()
        run = self.client.run_code("calculator", "print(open('a.txt').read(), end=''); open('a.txt', 'w')", session=use)
        self.assertEqual(b"".join(c.data for c in run), b"first")
        self.assertEqual(run.outcome.session.committed_version, 2)
        old = self.client.run_code("calculator", "print(open('a.txt').read())", session=skillrun.Session(made.session_id, version=1))
        self.assertEqual(b"".join(c.data for c in old), b"first\n")
        sessions.DeleteSession(session_pb2.DeleteSessionRequest(session_id=made.session_id))

    def test_environment_and_limits(self):
        run = self.client.run_code(
            "py",
            "import os; print(os.environ['APP_A'], os.environ['APP_SECRET'], os.getcwd())",
            env={"APP_A": "1"},
            secret_env={"APP_SECRET": "s"},
            files={"sub/x": b""},
            working_directory="sub",
            limits=skillrun.Limits(wall_time=47, processes=9),
        )
        self.assertEqual((run.header.limits.wall_time.seconds, run.header.limits.processes), (47, 9))
        self.assertEqual(run.result().check().text, "1 s /workspace/sub\n")

    def test_a_signal_reaches_the_program(self):
        code = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [10])\nprint('ready', flush=True)\nprint(signal.sigwait([10]))"
        run = self.client.run_code("py", code)
        seen = ""
        for chunk in run:
            if not seen:
                run.signal("SIGUSR1")
            seen += chunk.text
        self.assertEqual((seen.split()[0], run.exit_code), ("ready", 0))

    def test_many_threads_share_a_client(self):
        def one(n):
            return self.client.run_code("py", "import sys; print(sys.argv[1])", args=[str(n)]).result().check().text

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(one, range(16))), [f"{n}\n" for n in range(16)])

    def test_over_tcp(self):
        with skillrun.connect(os.environ["SKILLRUN_TCP"]) as client:
            self.assertEqual(client.run_code("py", "print(6 * 7)").result().check().text, "42\n")


class Breaking(Daemon):
    """The connection breaks. No output is lost or repeated, and no program runs twice."""

    def setUp(self):
        super().setUp()
        self.proxy = Proxy(os.environ["SKILLRUN_ADDRESS"])
        self.addCleanup(self.proxy.close)
        self.cut_client = skillrun.connect(self.proxy.address)
        self.addCleanup(self.cut_client.close)

    def test_a_cut_stream_goes_on_byte_for_byte(self):
        label = self.label()
        run = self.cut_client.run_code("py", BLOCKS, labels={"test": label})
        output = {"stdout": "", "stderr": ""}
        blocks = 0
        for chunk in run:
            output[chunk.stream] += chunk.text
            if chunk.stream == "stdout" and f"done {blocks}\n" in output["stdout"]:
                blocks += 1
                self.proxy.cut()
                self.client.signal(run.id, "SIGUSR1")
        want = "".join("".join(f"out {i} {n}\n" for n in range(500)) + f"done {i}\n" for i in range(8))
        self.assertEqual(output["stdout"], want)
        self.assertEqual(output["stderr"], "".join(f"err {i} {n}\n" for i in range(8) for n in range(500)))
        self.assertEqual((run.exit_code, self.proxy.cuts, len(self.of(label))), (0, 8, 1))

    def test_cut_before_the_header_it_is_sent_again_and_runs_once(self):
        list(self.cut_client.skills())  # opens the connection
        label = self.label()
        self.proxy.cut_before(b"sha256:")
        result = self.cut_client.run_code("py", "print('once')", labels={"test": label}).result().check()
        self.assertEqual((result.stdout, self.proxy.cuts, len(self.of(label))), (b"once\n", 1, 1))

    def test_a_cut_download_goes_on(self):
        run = self.client.run_code("py", "import os; open('big', 'wb').write(os.urandom(3 << 20))").check()
        (artifact,) = run.artifacts()

        class Cutting(io.BytesIO):
            def write(to, data):
                if not to.tell():
                    self.proxy.cut()
                return super().write(data)

        to = Cutting()
        self.cut_client.download(run.id, artifact, to)
        self.assertEqual((hashlib.sha256(to.getvalue()).hexdigest(), self.proxy.cuts), (artifact.sha256, 1))

    def test_with_cancel_the_daemon_ends_it(self):
        run = self.cut_client.run_code("py", "print('ready', flush=True)\nimport time\ntime.sleep(600)", on_disconnect="cancel")
        for chunk in run:
            self.proxy.cut()
        self.assertEqual((run.end, run.outcome.evidence.cancelled_by), ("cancelled", "disconnect"))


class Leaving(Daemon):
    SLEEPER = "print('ready', flush=True)\nimport time\ntime.sleep(600)"

    def test_leaving_the_loop_cancels(self):
        label = self.label()
        for chunk in self.client.run_code("py", self.SLEEPER, labels={"test": label}):
            break
        (execution,) = self.of(label)
        self.assertEqual((execution.outcome.end, execution.outcome.evidence.cancel_reason), (pb.EXECUTION_END_CANCELLED, "the caller left"))

    def test_leaving_the_block_cancels(self):
        with self.client.run_code("py", self.SLEEPER) as run:
            pass
        self.assertEqual((run.end, self.client.execution(run.id).outcome.end), ("cancelled", pb.EXECUTION_END_CANCELLED))

    def test_cancelled_without_waiting_then_deleted(self):
        label = self.label()
        pid = self.client.run_code("py", self.SLEEPER, labels={"test": label}, args=["a"]).detach()
        with self.assertRaises(skillrun.FailedPrecondition) as caught:
            self.client.delete(pid)
        self.assertEqual((caught.exception.reason, caught.exception.metadata), ("NOT_ENDED", {"executionId": pid}))
        self.client.cancel(pid, reason="enough", wait=False)
        self.assertEqual(self.client.cancel(pid).outcome.evidence.cancel_reason, "enough")
        (one,) = self.client.executions(labels={"test": label}, principal=self.client.execution(pid).principal, oldest_first=True)
        self.assertEqual(list(one.request.args), ["a"])
        created = one.create_time.ToDatetime()
        for end, want in ((created, 0), (created + datetime.timedelta(seconds=1), 1)):
            self.assertEqual(len(list(self.client.executions(labels={"test": label}, created_before=end))), want)
        self.assertEqual(len(list(self.client.executions(labels={"test": label}, created_after=created + datetime.timedelta(seconds=1)))), 0)
        self.client.delete(pid)
        with self.assertRaises(skillrun.NotFound):
            self.client.execution(pid)

    def test_the_deadline_cancels(self):
        run = self.client.run_code("py", self.SLEEPER, deadline=5)
        with self.assertRaises(skillrun.DeadlineExceeded):
            run.wait()
        self.assertEqual(self.client.execution(run.id).outcome.end, pb.EXECUTION_END_CANCELLED)

    def test_detached_it_goes_on_and_is_attached(self):
        pid = self.client.run_code("py", BLOCKS).detach()
        run = self.client.attach(pid)
        seen, blocks = "", 0
        for chunk in run:
            seen += chunk.text if chunk.stream == "stdout" else ""
            if f"done {blocks}\n" in seen:
                blocks += 1
                run.signal("SIGUSR1")
        self.assertEqual((blocks, run.exit_code), (8, 0))
        again = self.client.attach(pid, after_sequence=run.last_sequence - 1).result()
        self.assertEqual((again.stdout, again.exit_code), (b"", 0))

    def test_detached_with_a_large_file(self):
        code = "import os; print(os.path.getsize('f'))"
        run_id = self.client.run_code("py", code, files={"f": bytes(3 << 20)}).detach()
        self.assertEqual(self.client.attach(run_id).result().check().text, f"{3 << 20}\n")

    def test_ctrl_c_cancels(self):
        label = self.label()
        program = (
            "import sys, skillrun\n"
            "with skillrun.connect() as client:\n"
            "    for chunk in client.run_code('py', sys.argv[1], labels={'test': sys.argv[2]}):\n"
            "        sys.stdout.buffer.write(chunk.data)\n"
            "        sys.stdout.flush()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, self.SLEEPER, label],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # As in a terminal. A shell makes background processes ignore SIGINT.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        self.assertIn(b"KeyboardInterrupt", said)
        (execution,) = self.of(label)
        self.assertEqual((execution.outcome.end, execution.outcome.evidence.cancel_reason), (pb.EXECUTION_END_CANCELLED, "the caller left"))

    def test_cancel_says_why(self):
        run = self.client.run_code("py", self.SLEEPER)
        run.cancel(grace=0.5, reason="not needed")
        with self.assertRaises(skillrun.ProgramError) as caught:
            run.check()
        self.assertIn("not needed", str(caught.exception))


class Refusing(Daemon):
    def test_refusals_say_what_to_do(self):
        key = uuid.uuid4().hex
        self.client.run_code("py", "print(1)", idempotency_key=key).check()
        for kind, reason, field, options in (
            (skillrun.NotFound, "SKILL_NOT_FOUND", None, {"skill": "nobody", "code": ""}),
            (skillrun.NotFound, "SKILL_FILE_NOT_FOUND", None, {"script": "scripts/none.py"}),
            (skillrun.InvalidRequest, "SKILL_PATH_ESCAPES", "script", {"script": "../x.py"}),
            (skillrun.Denied, "COMMAND_NOT_ALLOWED", None, {"command": "rm x"}),
            (skillrun.InvalidRequest, "LIMIT_TOO_LARGE", "limits.wall_time", {"code": "1", "limits": skillrun.Limits(wall_time=9999)}),
            (skillrun.InvalidRequest, "ENV_NOT_ALLOWED", "env", {"code": "1", "env": {"LD_PRELOAD": "x"}}),
            (skillrun.AlreadyExists, "IDEMPOTENCY_KEY_REUSED", None, {"code": "print(2)", "idempotency_key": key}),
            (skillrun.InvalidRequest, "INVALID_INPUT_FILE", "files", {"code": "1", "files": {"../x": b""}}),
        ):
            with self.subTest(reason):
                with self.assertRaises(skillrun.CallError) as caught:
                    self.client.run(options.pop("skill", "py"), **options)
                e = caught.exception
                self.assertEqual((type(e), e.reason, e.field), (kind, reason, field), e)

    def test_the_same_key_is_the_same_execution(self):
        key = uuid.uuid4().hex
        runs = [self.client.run_code("py", "import random; print(random.random())", idempotency_key=key) for _ in range(2)]
        self.assertEqual([run.header.deduplicated for run in runs], [False, True])
        self.assertEqual((runs[0].id, runs[0].result().stdout), (runs[1].id, runs[1].result().stdout))

    def test_an_unknown_execution(self):
        with self.assertRaises(skillrun.NotFound) as caught:
            self.client.attach("nobody").wait()
        self.assertEqual(caught.exception.reason, "EXECUTION_NOT_FOUND")


class Asking(Daemon):
    def test_artifacts(self):
        code = "import os\nos.makedirs('out/deep')\nopen('out/deep/a.txt', 'w').write('abc')\nopen('b', 'w').write('')"
        run = self.client.run_code("py", code).check()
        self.assertEqual([(a.path, a.size_bytes) for a in run.artifacts()], [("b", 0), ("out/deep/a.txt", 3)])
        to = io.BytesIO()
        self.client.download(run.id, "out/deep/a.txt", to)
        self.assertEqual(to.getvalue(), b"abc")
        with tempfile.TemporaryDirectory() as folder:
            for artifact in run.artifacts():
                self.client.save(run.id, artifact, folder)
            with open(folder + "/out/deep/a.txt") as file:
                self.assertEqual(file.read(), "abc")
        with self.assertRaises(skillrun.NotFound):
            self.client.download(run.id, "none", io.BytesIO())

    def test_skills(self):
        names = [skill.name for skill in self.client.skills()]
        self.assertIn("calculator", names)
        self.assertIn("py", names)
        skill = self.client.skill("py")
        self.assertEqual([script.path for script in skill.scripts], ["scripts/echo.py"])
        active = self.client.activate("py")
        self.assertIn("/skills/py", active.instructions)
        self.assertEqual([m.type for m in active.messages], ["metadata", "prompt", "command_permissions"])
        self.assertIn(b"print", self.client.read_file("py", "scripts/echo.py"))
        with self.assertRaises(skillrun.CallError):
            self.client.read_file("py", "../../etc/passwd")
        self.assertTrue(self.client.check_command("py", "printf a").allowed)
        self.assertFalse(self.client.check_command("py", "rm a").allowed)
        self.assertTrue(self.client.capabilities().runtimes)


class Tools(Daemon):
    """The published contracts. Their promises are tested in internal/toolview; these tests
    check that the client returns complete results."""

    def test_execute_script(self):
        got = self.client.execute_script("py", "scripts/echo.py", {"b": "é", "a": 1}, timeout=20)
        self.assertEqual((got.success, got.exit_code, got.script_path, got.timeout, got.signal), (True, 0, "scripts/echo.py", False, None))
        self.assertEqual(got.stdout, '\n{"b": "é", "a": 1}')
        self.assertEqual(self.client.execution(got.execution_id).state, pb.EXECUTION_STATE_ENDED)
        with self.assertRaises(skillrun.PathSecurityError) as caught:
            self.client.execute_script("py", "../x.py")
        self.assertEqual(caught.exception.metadata["error"], "PathSecurityError")

    def test_execute_command(self):
        got = self.client.execute_command("py", "printf hello")
        self.assertEqual((got.success, got.exit_code, got.stdout, got.error), (True, 0, "hello", None))
        got = self.client.execute_command("py", "rm x")
        self.assertEqual((got.success, got.exit_code, got.execution_id), (False, -1, ""))
        self.assertIn("Command not allowed", got.error)

    def test_run_python_script_and_run_python(self):
        self.assertEqual(list(self.client.run_python_script("nobody", "print(1)")), ["error"])
        self.assertTrue(self.client.run_python("print(6 * 7)").startswith("Stdout:\n42"))

    def test_args_and_files(self):
        got = self.client.execute_script("py", "scripts/echo.py", args=["--n", "a b"], files={"in.txt": b"x"})
        self.assertEqual((got.stdout, got.artifacts, got.warnings), ("--n\na b\n{}", [], []))
        copy = "import shutil, sys; shutil.copy(*sys.argv[1:])"
        text = self.client.run_python(copy, args=["in.bin", "out.bin"], files={"in.bin": b"\0\xff"})
        self.assertEqual([(a.path, a.size_bytes) for a in text.artifacts], [("out.bin", 2)])
        self.assertEqual(text.artifacts[0].uri, f"execution://{text.execution_id}/artifacts/out.bin")
        files = {"again.bin": skillrun.Resource(text.artifacts[0].uri), "skill.md": skillrun.Resource("skill://py/SKILL.md")}
        code = "print(open('again.bin', 'rb').read(), open('skill.md').readline())"
        self.assertTrue(self.client.run_python(code, files=files).startswith("Stdout:\nb'\\x00\\xff' ---\n"))
        got = self.client.execute_command("py", "python -c 'print(open(\"again.bin\", \"rb\").read())'", files=files)
        self.assertEqual((got.stdout, got.error), ("b'\\x00\\xff'\n", None))
        with self.client.run("py", code=code, files=files) as run:
            self.assertTrue(run.result().check().stdout.startswith(b"b'\\x00\\xff' ---"))
        with self.assertRaisesRegex(skillrun.InvalidRequest, "execution not found") as caught:
            self.client.execute_script("py", "scripts/echo.py", files={"x": skillrun.Resource("execution://none/artifacts/x")})
        self.assertEqual(caught.exception.field, "files")

    def test_a_value_out_of_range_names_its_field(self):
        for call, field in (
            (lambda: self.client.execute_script("py", "scripts/echo.py", timeout=601), "timeout"),
            (lambda: self.client.execute_script("py", "scripts/echo.py", max_output_size=1 << 40), "max_output_size"),
            (lambda: self.client.execute_command("py", "printf x", timeout=601), "timeout"),
        ):
            with self.assertRaises(skillrun.InvalidRequest) as caught:
                call()
            self.assertEqual(caught.exception.field, field)
        self.assertIn("Error: timeout: 10m1s is above", self.client.run_python("1", timeout=601))

    def test_what_the_daemon_does_not_read(self):
        with self.assertRaises(skillrun.InvalidRequest) as caught:
            self.client.run_python("#" * (17 << 20))
        self.assertEqual((caught.exception.reason, caught.exception.metadata["maxMessageBytes"]), ("MESSAGE_TOO_LARGE", str(16 << 20)))

    def test_list_and_call(self):
        tools = {tool.name: tool for tool in self.client.list_tools()}
        self.assertEqual(tools["bash"].parameters["required"], ["skill", "command"])
        self.assertEqual(tools["bash"].definition["function"]["name"], "bash")
        seen = []
        got = self.client.call_tool("bash", {"skill": "py", "command": "printf hello"}, on_output=seen.append)
        self.assertEqual((got.structured["stdout"], got.is_error, b"".join(c.data for c in seen)), ("hello", False, b"hello"))
        self.assertTrue(got.execution_id)
        got = self.client.call_tool("activate_skill", {"skill": "nobody"})
        self.assertEqual((got.is_error, got.execution_id), (True, ""))


def word_skill(test, name):
    """A folder of a skill whose script is still to be written. It goes at the end of the test."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    skill = pathlib.Path(folder.name)
    (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Prints a word.\n---\nRun scripts/word.py.\n")
    (skill / "scripts").mkdir()
    return skill


class Pushing(Daemon):
    def test_a_pushed_folder_runs(self):
        skill = word_skill(self, "pushed-by-threads")
        for word in ("one", "two"):
            (skill / "scripts" / "word.py").write_text(f"print({word!r})\n")
            reply = self.client.push(skill, name="pushed-by-threads")
            self.assertEqual((reply.name, reply.existed), ("pushed-by-threads", False))
            result = self.client.run("pushed-by-threads", script="scripts/word.py").result()
            self.assertEqual((result.stdout.decode(), result.outcome.skill_digest), (f"{word}\n", reply.version.digest))
        with self.assertRaises(skillrun.InvalidRequest):
            self.client.push(skill, name="another-name")


if __name__ == "__main__":
    unittest.main()
