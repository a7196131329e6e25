"""skillrun.aio against a real daemon, which the Go test starts as for test_daemon."""

import asyncio
import hashlib
import io
import os
import pathlib
import tempfile
import unittest
import uuid

import skillrun
from skillrun import aio
from skillrun.v1 import execution_pb2 as pb
from skillrun.v1 import session_pb2

from .proxy import Proxy
from .test_daemon import BLOCKS, word_skill

SLEEPER = "print('ready', flush=True)\nimport time\ntime.sleep(600)"
READ = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"


class Daemon(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = aio.connect()
        self.addAsyncCleanup(self.client.close)

    def label(self):
        return f"{self.id().rsplit('.', 1)[-1][:40]}-{uuid.uuid4().hex[:8]}"

    async def of(self, label):
        return [e async for e in self.client.executions(labels={"test": label})]

    async def code(self, code, **options):
        return await (await self.client.run_code("py", code, **options)).result()


class Running(Daemon):
    async def test_a_script_prints(self):
        text = b""
        async with await self.client.run("calculator", script="scripts/calc.py", args=["2 + 2"]) as run:
            async for chunk in run:
                self.assertEqual(chunk.stream, "stdout")
                text += chunk.data
        self.assertEqual((text.strip().split()[-1], run.exit_code, run.end, run.ok), (b"4", 0, "exited", True))

    async def test_output_is_live(self):
        pipe, seen = aio.Pipe(), ""
        async with await self.client.run_code("calculator", "for i in range(3):\n print(i)\n input()", stdin=pipe) as run:
            async for chunk in run:
                seen += chunk.text
                if seen.endswith("\n"):
                    pipe.write(b"\n")
        self.assertEqual((seen, run.exit_code), ("0\n1\n2\n", 0))

    async def test_a_session_keeps_files(self):
        sessions = self.client.session_service
        made = (await sessions.CreateSession(session_pb2.CreateSessionRequest())).session
        use = skillrun.Session(made.session_id)
        for want in ("x\n", "xx\n"):
            code = "open('a', 'a').write('x'); print(open('a').read())"
            run = await self.client.run_code("calculator", code, session=use)
            text = b""
            async for chunk in run:
                text += chunk.data
            self.assertEqual(text.decode(), want)
        await sessions.DeleteSession(session_pb2.DeleteSessionRequest(session_id=made.session_id))

    async def test_ends(self):
        for code, limits, exit_code, text in (
            ("import sys; sys.exit(3)", None, 3, "exit status 3"),
            ("import os; os.kill(os.getpid(), 9)", None, -9, "signal: SIGKILL"),
            ("while True: pass", skillrun.Limits(wall_time=0.5), 124, "timed out: wall time"),
        ):
            with self.subTest(text):
                run = await self.client.run_code("calculator", code, limits=limits)
                with self.assertRaises(skillrun.ProgramError) as caught:
                    await run.check()
                self.assertTrue(str(caught.exception).startswith(text), caught.exception)
                self.assertEqual((run.exit_code, run.header.skill), (exit_code, "calculator"))

    async def test_input(self):
        large = os.urandom(2 << 20)

        async def later():
            for i in range(3):
                await asyncio.sleep(0)
                yield b"%d," % i

        for name, options, want in (
            ("nothing", {}, b""),
            ("bytes", {"stdin": b"a\x00b"}, b"a\x00b"),
            ("JSON", {"json_arguments": {"b": "é"}}, '{"b": "é"}'.encode()),
            ("large", {"stdin": large}, large),
            ("a file", {"stdin": io.BytesIO(large)}, large),
            ("pieces", {"stdin": (b"%d," % i for i in range(3))}, b"0,1,2,"),
            ("asynchronous pieces", {"stdin": later()}, b"0,1,2,"),
            ("with a key", {"stdin": io.BytesIO(b"keyed"), "idempotency_key": uuid.uuid4().hex}, b"keyed"),
        ):
            with self.subTest(name):
                self.assertEqual((await self.code(READ, **options)).check().stdout, want)
        with self.assertRaisesRegex(ValueError, "an idempotency key needs bytes, text or a file"):
            await self.code(READ, stdin=later(), idempotency_key="k")

    async def test_input_that_fails(self):
        async def broken():
            yield b"a"
            raise RuntimeError("no more")

        with self.assertRaisesRegex(skillrun.InputLost, "stdin: no more"):
            await self.code(READ, stdin=broken())

    async def test_files_small_and_large(self):
        large = os.urandom(5 << 20)
        code = "import hashlib, sys\nfor p in sys.argv[1:]: print(hashlib.sha256(open(p, 'rb').read()).hexdigest())"
        with tempfile.NamedTemporaryFile() as file:
            file.write(large)
            file.flush()
            files = {"in/large": pathlib.Path(file.name), "small": b"abc"}
            result = (await self.code(code, args=list(files), files=files)).check()
        self.assertEqual(result.text, "".join(hashlib.sha256(data).hexdigest() + "\n" for data in (large, b"abc")))
        with self.assertRaisesRegex(skillrun.InputError, "No such file"):
            await self.code(code, files={"x": pathlib.Path("/nonexistent")})

    async def test_many_tasks_share_a_client(self):
        results = await asyncio.gather(*(self.code("import sys; print(sys.argv[1])", args=[str(n)]) for n in range(16)))
        self.assertEqual([r.check().text for r in results], [f"{n}\n" for n in range(16)])

    async def test_over_tcp(self):
        async with aio.connect(os.environ["SKILLRUN_TCP"]) as client:
            self.assertEqual((await (await client.run_code("py", "print(6 * 7)")).result()).check().text, "42\n")


class Breaking(Daemon):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.proxy = Proxy(os.environ["SKILLRUN_ADDRESS"])
        self.addCleanup(self.proxy.close)
        self.cut_client = aio.connect(self.proxy.address)
        self.addAsyncCleanup(self.cut_client.close)

    async def test_a_cut_stream_goes_on_byte_for_byte(self):
        label = self.label()
        run = await self.cut_client.run_code("py", BLOCKS, labels={"test": label})
        output, blocks = {"stdout": "", "stderr": ""}, 0
        async for chunk in run:
            output[chunk.stream] += chunk.text
            if chunk.stream == "stdout" and f"done {blocks}\n" in output["stdout"]:
                blocks += 1
                self.proxy.cut()
                await self.client.signal(run.id, "SIGUSR1")
        self.assertEqual(output["stdout"], "".join("".join(f"out {i} {n}\n" for n in range(500)) + f"done {i}\n" for i in range(8)))
        self.assertEqual(output["stderr"], "".join(f"err {i} {n}\n" for i in range(8) for n in range(500)))
        self.assertEqual((run.exit_code, self.proxy.cuts, len(await self.of(label))), (0, 8, 1))

    async def test_cut_before_the_header_it_is_sent_again_and_runs_once(self):
        self.assertTrue([s async for s in self.cut_client.skills()])  # opens the connection
        label = self.label()
        self.proxy.cut_before(b"sha256:")
        run = await self.cut_client.run_code("py", "print('once')", labels={"test": label})
        result = (await run.result()).check()
        self.assertEqual((result.stdout, self.proxy.cuts, len(await self.of(label))), (b"once\n", 1, 1))

    async def test_a_cut_download_goes_on(self):
        run = await (await self.client.run_code("py", "import os; open('big', 'wb').write(os.urandom(3 << 20))")).check()
        (artifact,) = await run.artifacts()

        class Cutting(io.BytesIO):
            def write(to, data):
                if not to.tell():
                    self.proxy.cut()
                return super().write(data)

        to = Cutting()
        await self.cut_client.download(run.id, artifact, to)
        self.assertEqual((hashlib.sha256(to.getvalue()).hexdigest(), self.proxy.cuts), (artifact.sha256, 1))


class Leaving(Daemon):
    async def test_leaving_the_block_cancels(self):
        async with await self.client.run_code("py", SLEEPER) as run:
            async for chunk in run:
                break
        self.assertEqual((run.end, (await self.client.execution(run.id)).outcome.end), ("cancelled", pb.EXECUTION_END_CANCELLED))

    async def test_cancelling_the_task_cancels(self):
        ready, ids = asyncio.Event(), []

        async def follow():
            run = await self.client.run_code("py", SLEEPER)
            ids.append(run.id)
            async for chunk in run:
                ready.set()

        task = asyncio.ensure_future(follow())
        await ready.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        outcome = (await self.client.execution(ids[0])).outcome
        self.assertEqual((outcome.end, outcome.evidence.cancel_reason), (pb.EXECUTION_END_CANCELLED, "the caller left"))

    async def test_closing_the_client_cancels(self):
        async with aio.connect() as client:
            run = await client.run_code("py", SLEEPER)
        self.assertEqual((await self.client.execution(run.id)).outcome.end, pb.EXECUTION_END_CANCELLED)
        with self.assertRaises(skillrun.CallError):
            await client.execution(run.id)

    async def test_the_deadline_cancels(self):
        run = await self.client.run_code("py", SLEEPER, deadline=5)
        with self.assertRaises(skillrun.DeadlineExceeded):
            await run.wait()
        self.assertEqual((await self.client.execution(run.id)).outcome.end, pb.EXECUTION_END_CANCELLED)

    async def test_detached_it_goes_on_and_is_attached(self):
        pid = await (await self.client.run_code("py", BLOCKS)).detach()
        run = self.client.attach(pid)
        seen, blocks = "", 0
        async for chunk in run:
            seen += chunk.text if chunk.stream == "stdout" else ""
            if f"done {blocks}\n" in seen:
                blocks += 1
                await run.signal("SIGUSR1")
        self.assertEqual((blocks, run.exit_code), (8, 0))
        again = await self.client.attach(pid, after_sequence=run.last_sequence).result()
        self.assertEqual((again.stdout, again.exit_code), (b"", 0))

    async def test_detached_with_a_large_file(self):
        code = "import os; print(os.path.getsize('f'))"
        pid = await (await self.client.run_code("py", code, files={"f": bytes(3 << 20)})).detach()
        self.assertEqual((await self.client.attach(pid).result()).check().text, f"{3 << 20}\n")

    async def test_cancel_says_why(self):
        run = await self.client.run_code("py", SLEEPER)
        await run.cancel(grace=0.5, reason="not needed")
        with self.assertRaisesRegex(skillrun.ProgramError, "not needed"):
            await run.check()
        await self.client.delete(run.id)
        with self.assertRaises(skillrun.NotFound):
            await self.client.execution(run.id)


class Refusing(Daemon):
    async def test_refusals_say_what_to_do(self):
        for kind, reason, field, options in (
            (skillrun.NotFound, "SKILL_NOT_FOUND", None, {"skill": "nobody", "code": ""}),
            (skillrun.Denied, "COMMAND_NOT_ALLOWED", None, {"command": "rm x"}),
            (skillrun.InvalidRequest, "LIMIT_TOO_LARGE", "limits.wall_time", {"code": "1", "limits": skillrun.Limits(wall_time=9999)}),
            (skillrun.InvalidRequest, "INVALID_INPUT_FILE", "files", {"code": "1", "files": {"../x": b""}}),
        ):
            with self.subTest(reason):
                with self.assertRaises(skillrun.CallError) as caught:
                    await self.client.run(options.pop("skill", "py"), **options)
                e = caught.exception
                self.assertEqual((type(e), e.reason, e.field), (kind, reason, field), e)
        with self.assertRaises(skillrun.NotFound):
            await self.client.attach("nobody").wait()

    async def test_no_daemon(self):
        async with aio.connect("unix:///nonexistent/s.sock") as client:
            with self.assertRaises(skillrun.Unavailable):
                await client.capabilities()


class Asking(Daemon):
    async def test_artifacts(self):
        code = "import os\nos.makedirs('out/deep')\nopen('out/deep/a.txt', 'w').write('abc')\nopen('b', 'w').write('')"
        run = await (await self.client.run_code("py", code)).check()
        self.assertEqual([(a.path, a.size_bytes) for a in await run.artifacts()], [("b", 0), ("out/deep/a.txt", 3)])
        with tempfile.TemporaryDirectory() as folder:
            paths = [await self.client.save(run.id, artifact, folder) for artifact in await run.artifacts()]
            self.assertEqual(pathlib.Path(paths[1]).read_text(), "abc")
        with self.assertRaises(skillrun.NotFound):
            await self.client.download(run.id, "none", io.BytesIO())

    async def test_skills(self):
        self.assertIn("py", [skill.name async for skill in self.client.skills()])
        self.assertEqual([s.path for s in (await self.client.skill("py")).scripts], ["scripts/echo.py"])
        self.assertIn("/skills/py", (await self.client.activate("py")).instructions)
        self.assertIn(b"print", await self.client.read_file("py", "scripts/echo.py"))
        self.assertTrue((await self.client.check_command("py", "printf a")).allowed)
        self.assertTrue((await self.client.capabilities()).runtimes)
        self.assertEqual(len(await self.client.prepare("py")), 1)

    async def test_tools(self):
        got = await self.client.execute_script("py", "scripts/echo.py", {"a": 1}, timeout=20)
        self.assertEqual((got.success, got.stdout), (True, '\n{"a": 1}'))
        self.assertEqual((await self.client.execution(got.execution_id)).state, pb.EXECUTION_STATE_ENDED)
        with self.assertRaises(skillrun.PathSecurityError):
            await self.client.execute_script("py", "../x.py")
        self.assertEqual((await self.client.execute_command("py", "printf hello")).stdout, "hello")
        self.assertTrue((await self.client.run_python("print(6 * 7)")).startswith("Stdout:\n42"))
        self.assertEqual(list(await self.client.run_python_script("nobody", "print(1)")), ["error"])
        self.assertIn("bash", [tool.name for tool in await self.client.list_tools()])
        seen = []
        got = await self.client.call_tool("bash", {"skill": "py", "command": "printf hello"}, on_output=seen.append)
        self.assertEqual((got.structured["stdout"], b"".join(c.data for c in seen)), ("hello", b"hello"))


class Pushing(Daemon):
    async def test_a_pushed_folder_runs(self):
        skill = word_skill(self, "pushed-by-tasks")
        for word in ("one", "two"):
            (skill / "scripts" / "word.py").write_text(f"print({word!r})\n")
            reply = await self.client.push(skill, name="pushed-by-tasks")
            self.assertEqual((reply.name, reply.existed), ("pushed-by-tasks", False))
            result = await (await self.client.run("pushed-by-tasks", script="scripts/word.py")).result()
            self.assertEqual((result.stdout.decode(), result.outcome.skill_digest), (f"{word}\n", reply.version.digest))
        with self.assertRaises(skillrun.InvalidRequest):
            await self.client.push(skill, name="another-name")


class Same(unittest.TestCase):
    def test_the_surface_is_the_same(self):
        """Every public method of Client and Run is in skillrun.aio too, with the same arguments."""
        import inspect

        for ours, theirs in ((aio.Client, skillrun.Client), (aio.Run, skillrun.Run)):
            for name, method in inspect.getmembers(theirs, inspect.isfunction):
                if not name.startswith("_"):
                    want = [(p.name, p.default) for p in inspect.signature(method).parameters.values()]
                    got = [(p.name, p.default) for p in inspect.signature(getattr(ours, name)).parameters.values()]
                    self.assertEqual(got, want, name)


if __name__ == "__main__":
    unittest.main()
