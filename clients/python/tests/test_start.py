"""Starting a run: the request, its repetition, and refusals."""

import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import grpc

import skillrun
from skillrun import address, aio, inputs
from skillrun.v1 import execution_pb2 as pb

from .fake import Case, Record, abort

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class Requests(Case):
    def test_a_parameter_of_a_wrong_type_is_named_before_the_call(self):
        daemon, client = self.daemon()
        for name, value, why in (
            ("session", "abc", "want a skillrun.Session, got str"),
            ("limits", {"wall_time": 1}, "want a skillrun.Limits, got dict"),
            ("network", ["a"], "want a skillrun.Network, got list"),
            ("args", [1], "want strings, got int"),
            ("env", {"A": 1}, "want strings, got int"),
            ("secret_env", {1: "a"}, "want strings, got int"),
            ("labels", ["a"], "want a dict, got list"),
        ):
            with self.subTest(name), self.assertRaisesRegex(TypeError, f"^{name}: {why}$"):
                client.run("s", script="x.py", **{name: value})
        self.assertEqual(daemon.asked("Execute"), [])

    def test_every_option_arrives(self):
        daemon, client = self.daemon(Execute=lambda r, c: iter(Record().exit().events))
        client.run(
            "s",
            script="x.py",
            args=["a", "b c"],
            json_arguments={"k": "é", "n": 1},
            files={"in/a.txt": b"abc", "tool": skillrun.File(b"#!", executable=True)},
            working_directory="in",
            env={"A": "1"},
            secret_env={"B": "2"},
            labels={"l": "v"},
            limits=skillrun.Limits(wall_time=1.5, memory_bytes=1 << 20, processes=3),
            network=skillrun.NO_NETWORK,
            session=skillrun.Session("s1", version=2, wait=True, commit_failed=True),
            on_disconnect="cancel",
            idempotency_key="k1",
            queue_timeout=2,
        ).wait()
        (got,) = daemon.asked("Execute")
        want = pb.ExecuteRequest(
            skill="s",
            script="x.py",
            args=["a", "b c"],
            json_arguments='{"k": "é", "n": 1}',
            files=[
                pb.InputFile(path="in/a.txt", content=b"abc"),
                pb.InputFile(path="tool", content=b"#!", executable=True),
            ],
            working_directory="in",
            env={"A": "1"},
            secret_env={"B": "2"},
            labels={"l": "v"},
            network_rules=pb.NetworkRules(allow=["none"]),
            session=pb.SessionUse(session_id="s1", version=2, wait=True, commit_failed=True),
            on_disconnect=pb.ON_DISCONNECT_CANCEL,
            idempotency_key="k1",
        )
        want.limits.wall_time.FromMilliseconds(1500)
        want.limits.memory_bytes, want.limits.processes = 1 << 20, 3
        want.queue_timeout.FromSeconds(2)
        self.assertEqual(got, want)

    def test_three_sources(self):
        daemon, client = self.daemon(Execute=lambda r, c: iter(Record().exit().events))
        client.run("s", script="x.py").wait()
        client.run_code("s", "print(1)", "python", args=["a"]).wait()
        client.run_command("s", "ls -l").wait()
        kinds = [request.WhichOneof("source") for request in daemon.asked("Execute")]
        self.assertEqual(kinds, ["script", "code", "command"])

    def test_misuse_is_said_before_anything_is_sent(self):
        daemon, client = self.daemon(Execute=lambda r, c: iter(Record().exit().events))
        for want, options in (
            ("one of script, code and command, got none", {}),
            ("got script and command", {"script": "a", "command": "b"}),
            ("on_disconnect 'maybe'", {"script": "a", "on_disconnect": "maybe"}),
            ("args: want a list", {"script": "a", "args": "one two"}),
            ("file a: want bytes for content, or a pathlib.Path", {"script": "a", "files": {"a": "text"}}),
            ("file a:", {"script": "a", "files": {"a": pathlib.Path("/nowhere/at/all")}}),
            ("not a regular file", {"script": "a", "files": {"a": pathlib.Path("/")}}),
            ("arguments: ", {"script": "a", "json_arguments": {"x": object()}}),
            ("arguments: ", {"script": "a", "json_arguments": {"x": float("nan")}}),
            ("after JSON arguments", {"script": "a", "json_arguments": {}, "stdin": b"x", "idempotency_key": "k"}),
            ("at most 15 MiB", {"script": "a", "stdin": bytes(15 << 20) + b"x", "idempotency_key": "k"}),
        ):
            with self.subTest(want):
                with self.assertRaises((TypeError, ValueError, skillrun.SkillrunError)) as caught:
                    client.run("s", **options)
                self.assertIn(want, str(caught.exception))
        self.assertEqual(daemon.asked("Execute"), [])

    def test_input_is_streamed_if_it_is_large_or_comes_later(self):
        large = os.urandom(3 << 20)
        got = []

        def interactive(requests, context):
            for request in requests:
                got.append(request)
            yield from Record().exit().events

        _, client = self.daemon(ExecuteInteractive=interactive)
        with tempfile.NamedTemporaryFile() as file:
            file.write(large)
            file.flush()
            for name, options, stdin in (
                ("a file", {"files": {"small": b"s", "large": pathlib.Path(file.name)}}, None),
                ("bytes", {"stdin": large}, large),
                ("a generator", {"stdin": iter([b"a", b"bc"])}, b"abc"),
                ("an open file", {"stdin": open(file.name, "rb")}, large),
                ("after JSON", {"json_arguments": {}, "stdin": b"abc"}, b"abc"),
            ):
                with self.subTest(name):
                    got.clear()
                    client.run("s", script="x", **options).wait()
                    start = got[0].start
                    self.assertEqual(start.idempotency_key != "", stdin is None)
                    if stdin is None:
                        small, announced = start.files
                        self.assertEqual((small.content, announced.streamed.size_bytes), (b"s", len(large)))
                        chunks = [m.file_chunk for m in got[1:]]
                        self.assertEqual(b"".join(c.data for c in chunks), large)
                        at = [c.offset_bytes for c in chunks]
                        self.assertEqual(at, list(range(0, len(large), 256 << 10)))
                    else:
                        self.assertEqual(b"".join(m.stdin for m in got[1:]), stdin)
                        self.assertEqual(got[-1].WhichOneof("message"), "close_stdin")
                    if hasattr(options.get("stdin"), "close"):
                        options["stdin"].close()

    def test_input_that_fails(self):
        def interactive(requests, context):
            for _ in requests:
                pass
            yield from Record().exit().events

        _, client = self.daemon(ExecuteInteractive=interactive)

        def bad():
            yield b"a"
            raise OSError("the disk went away")

        run = client.run("s", script="x", stdin=bad())
        with self.assertRaises(skillrun.InputLost) as caught:
            run.wait()
        self.assertIn("the disk went away", str(caught.exception))
        self.assertTrue(run.ok)

        with tempfile.NamedTemporaryFile() as file:
            file.truncate(2 << 20)
            _, client = self.daemon(ExecuteInteractive=lambda r, c: (file.truncate(0), list(r), iter(()))[2])
            with self.assertRaises(skillrun.InputError) as caught:
                client.run("s", script="x", files={"f": pathlib.Path(file.name)})
        self.assertIn("file f: it became shorter than 2097152 bytes", str(caught.exception))

    def test_pipe(self):
        def interactive(requests, context):
            record = Record()
            yield from record.events
            for request in requests:
                kind = request.WhichOneof("message")
                if kind == "stdin":
                    yield record.out(b"got " + request.stdin).events[-1]
                elif kind == "close_stdin":
                    yield record.exit().events[-1]

        _, client = self.daemon(ExecuteInteractive=interactive)
        pipe = skillrun.Pipe()
        pipe.write(b"0")
        seen = []
        with client.run("s", code="", stdin=pipe) as run:
            for chunk in run:
                seen.append(chunk.text)
                if len(seen) == 3:
                    pipe.close()
                else:
                    pipe.write(b"%d" % len(seen))
        self.assertEqual(seen, ["got 0", "got 1", "got 2"])


# Starts more runs than asyncio's executor has threads. Nobody ends their standard input.
UNREAD = """
import asyncio, os, sys
import skillrun
from skillrun import aio

async def main():
    async with aio.connect(sys.argv[1]) as client:
        for _ in range(min(32, (os.cpu_count() or 1) + 4) + 1):
            run = await client.run("s", script="x", stdin=skillrun.Pipe())
            await run.wait()
        try:
            keyed = client.run("s", script="x", stdin=skillrun.Pipe(), idempotency_key="k")
            await asyncio.wait_for(keyed, 0.01)
        except asyncio.TimeoutError:
            print("ended", flush=True)

asyncio.run(main())
"""

# The caller has read a line. The second line is in the buffer of sys.stdin, and no third one comes.
OPEN = """
import asyncio, sys
import skillrun
from skillrun import aio

async def main():
    async with aio.connect(sys.argv[2]) as client:
        await (await client.run("s", script="x", stdin=sys.stdin.buffer)).wait()

print(sys.stdin.buffer.readline().decode(), end="")
if sys.argv[1] == "aio":
    asyncio.run(main())
else:
    with skillrun.connect(sys.argv[2]) as client:
        client.run("s", script="x", stdin=sys.stdin.buffer).wait()
"""


class BlockingInput(Case):
    def test_input_that_blocks_holds_nothing_up(self):
        daemon, _ = self.daemon(ExecuteInteractive=lambda r, c: iter(Record().exit().events))
        # The time only ends a process that hangs.
        done = subprocess.run([sys.executable, "-c", UNREAD, daemon.address], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "ended\n"), done.stderr)

    def test_a_program_can_exit_while_its_input_is_open(self):
        def interactive(requests, _):
            next(requests)
            line = next(requests).stdin
            return iter((Record().exit() if line == b"two\n" else Record().exit(1)).events)

        daemon, _ = self.daemon(ExecuteInteractive=interactive)
        for client in ("sync", "aio"):
            command = [sys.executable, "-c", OPEN, client, daemon.address]
            with self.subTest(client), subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as process:
                process.stdin.write(b"one\ntwo\n")
                process.stdin.flush()
                try:
                    # The time only ends a process that hangs.
                    code = process.wait(timeout=60)
                finally:
                    process.kill()
                self.assertEqual((code, process.stdout.read()), (0, b"one\n"), process.stderr.read().decode())

    def test_a_reader_is_read_to_its_end(self):
        content = b"0123456789" * 10000

        def file():
            with tempfile.NamedTemporaryFile() as made:
                made.write(content)
                made.flush()
                return open(made.name, "rb")

        def pipe():
            receiver, sender = os.pipe()
            writer = open(sender, "wb")
            thread = threading.Thread(target=lambda: [writer.write(content), writer.close()])
            thread.start()
            self.addCleanup(thread.join)
            return open(receiver, "rb")

        for make in (file, pipe):
            with self.subTest(make.__name__), make() as reader:
                taken = reader.read(7)  # the next bytes are in the reader's buffer
                self.assertEqual(taken + b"".join(inputs.stdin_pieces(reader)), content)
        with file() as reader:
            pieces = inputs.stdin_pieces(reader)
            taken = next(pieces)
            self.assertEqual((taken, reader.tell()), (content[: len(taken)], len(taken)))
            reader.close()
            with self.assertRaisesRegex(ValueError, "closed file"):
                next(pieces)

    def test_pieces_and_errors_of_a_thread_arrive(self):
        def source():
            yield b"a"
            yield b"b"
            raise OSError("no more")

        async def run(address):
            async with aio.connect(address) as client:
                await (await client.run("s", script="x", stdin=source())).wait()

        got = []

        def interactive(requests, _):
            for request in requests:
                got.append(request.stdin)
                if request.HasField("close_stdin"):
                    break
            return iter(Record().exit().events)

        daemon, _ = self.daemon(ExecuteInteractive=interactive)
        with self.assertRaisesRegex(skillrun.InputLost, "stdin: no more"):
            asyncio.run(run(daemon.address))
        self.assertEqual(got, [b"", b"a", b"b", b""])


class Retries(Case):
    """A request is repeated only if it cannot have started, or cannot start twice."""

    def flaky(self, fail, times=2, **more):
        """A daemon that fails a request several times before it starts the program."""
        tries = []

        def execute(request, context):
            tries.append(request)
            if len(tries) <= times:
                fail(context)
            return iter(Record().exit().events)

        def interactive(requests, context):
            return execute(next(requests).start, context)

        daemon, client = self.daemon(Execute=execute, ExecuteInteractive=interactive, **more)
        return tries, client

    def test_unavailable_before_the_header_is_repeated_with_its_key(self):
        tries, client = self.flaky(lambda c: abort(c, UNAVAILABLE, "Socket closed"))
        self.assertTrue(client.run("s", script="x").check().ok)
        self.assertEqual((len(tries), len({t.idempotency_key for t in tries})), (3, 1))
        client.run("s", script="x").wait()
        self.assertEqual(len({t.idempotency_key for t in tries}), 2)

    def test_draining_is_repeated(self):
        tries, client = self.flaky(lambda c: abort(c, UNAVAILABLE, "draining", "DRAINING", retry=1))
        self.assertTrue(client.run("s", script="x").check().ok)
        self.assertEqual(len(tries), 3)

    def test_patience_ends(self):
        tries, client = self.flaky(lambda c: abort(c, UNAVAILABLE, "Socket closed"), times=99)
        with self.assertRaises(skillrun.Unavailable):
            client.run("s", script="x")
        self.assertEqual(len(tries), 5)

    def test_streamed_input_is_never_sent_twice(self):
        tries, client = self.flaky(lambda c: abort(c, UNAVAILABLE, "Socket closed"))
        with self.assertRaises(skillrun.Unavailable):
            client.run("s", script="x", stdin=iter([b"a"]))
        self.assertEqual(len(tries), 1)

    def test_answers_are_not_repeated(self):
        for code in ("INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED", "INTERNAL"):
            with self.subTest(code):
                reason = "R" if code == "INTERNAL" else ""
                tries, client = self.flaky(lambda c: abort(c, grpc.StatusCode[code], "no", reason))
                with self.assertRaises(skillrun.CallError):
                    client.run("s", script="x")
                self.assertEqual(len(tries), 1)

    def test_after_the_header_nothing_is_sent_again(self):
        record = Record().exit()
        executes = []

        def execute(request, context):
            executes.append(request)
            yield record.events[0]
            abort(context, UNAVAILABLE, "gone")

        daemon, client = self.daemon(Execute=execute, AttachExecution=lambda r, c: iter(record.after(r.after_sequence)))
        self.assertTrue(client.run("s", script="x").check().ok)
        self.assertEqual((len(executes), [r.after_sequence for r in daemon.asked("AttachExecution")]), (1, [1]))

    def test_no_daemon_is_said_at_once(self):
        waits = []

        class Counting(skillrun.Patience):
            def wait(self, attempt, deadline):
                waits.append(attempt)
                return super().wait(attempt, deadline)

        with skillrun.connect("unix:///nowhere/s.sock", patience=Counting()) as client:
            with self.assertRaises(skillrun.Unavailable) as caught:
                client.run("s", script="x")
            with self.assertRaises(skillrun.Unavailable):
                list(client.skills())
        self.assertIn("/nowhere/s.sock", str(caught.exception))
        self.assertEqual(waits, [])

    def test_input_lost_with_the_connection(self):
        record = Record()
        hold = threading.Event()
        self.addCleanup(hold.set)

        def interactive(requests, context):
            next(requests)
            yield record.events[0]
            abort(context, UNAVAILABLE, "gone")

        def never_ends():
            yield b"a"
            hold.wait(60)
            yield b"b"

        daemon, client = self.daemon(ExecuteInteractive=interactive, AttachExecution=lambda r, c: iter(record.after(r.after_sequence)))
        record.exit()
        with self.assertRaises(skillrun.InputLost):
            client.run("s", script="x", stdin=never_ends()).wait()


class Refusals(Case):
    def test_codes_reasons_fields_and_waits(self):
        for code, want in (
            ("INVALID_ARGUMENT", skillrun.InvalidRequest),
            ("OUT_OF_RANGE", skillrun.InvalidRequest),
            ("NOT_FOUND", skillrun.NotFound),
            ("ALREADY_EXISTS", skillrun.AlreadyExists),
            ("PERMISSION_DENIED", skillrun.Denied),
            ("UNAUTHENTICATED", skillrun.Unauthenticated),
            ("FAILED_PRECONDITION", skillrun.FailedPrecondition),
            ("UNIMPLEMENTED", skillrun.Unsupported),
            ("RESOURCE_EXHAUSTED", skillrun.Busy),
            ("UNAVAILABLE", skillrun.Unavailable),
            ("DATA_LOSS", skillrun.DataLoss),
            ("INTERNAL", skillrun.CallError),
        ):
            with self.subTest(code):
                _, client = self.daemon(
                    Execute=lambda r, c: abort(c, grpc.StatusCode[code], "why", "WORD", "limits.wall_time", 1.5, {"k": "v"})
                )
                with self.assertRaises(skillrun.CallError) as caught:
                    client.run("s", script="x")
                e = caught.exception
                self.assertIs(type(e), want)
                self.assertEqual(
                    (e.reason, e.message, e.field, e.retry_after, e.metadata, e.code.name, str(e)),
                    ("WORD", "why", "limits.wall_time", 1.5, {"k": "v"}, code, "WORD: why"),
                )

    def test_a_message_that_is_too_large_is_not_busy(self):
        _, client = self.daemon(Execute=lambda r, c: abort(c, grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"))
        with self.assertRaises(skillrun.CallError) as caught:
            client.run("s", script="x")
        self.assertIs(type(caught.exception), skillrun.CallError)

    def test_details_of_others_and_garbage_are_not_ours(self):
        for name, fail in {
            "another domain": lambda c: abort(c, grpc.StatusCode.NOT_FOUND, "why", "WORD", domain="proxy.example"),
            "garbage": lambda c: (c.set_trailing_metadata([("grpc-status-details-bin", b"\xff\xff")]), c.abort(grpc.StatusCode.NOT_FOUND, "why")),
        }.items():
            with self.subTest(name):
                _, client = self.daemon(Execute=lambda r, c: fail(c))
                with self.assertRaises(skillrun.NotFound) as caught:
                    client.run("s", script="x")
                self.assertEqual((caught.exception.reason, str(caught.exception)), ("", "why"))

    def test_ends_of_programs(self):
        for end, fields, kind, text in (
            (pb.EXECUTION_END_EXITED, {"exit_code": 2, "advice": "look"}, skillrun.ProgramError, "exit status 2; look"),
            (pb.EXECUTION_END_EXITED, {}, skillrun.ProgramError, "exited, but the daemon did not say with which exit code"),
            (pb.EXECUTION_END_SIGNALED, {"exit_code": -9, "signal": "SIGKILL"}, skillrun.ProgramError, "signal: SIGKILL"),
            (pb.EXECUTION_END_TIMED_OUT, {"exit_code": 124}, skillrun.ProgramError, "timed out: wall time"),
            (pb.EXECUTION_END_OOM_KILLED, {}, skillrun.ProgramError, "oom killed"),
            (pb.EXECUTION_END_OOM_KILLED, {"evidence": pb.ExecutionEvidence(oom_scope=pb.OOM_SCOPE_EXECUTION)}, skillrun.ProgramError, "oom killed"),
            (pb.EXECUTION_END_OOM_KILLED, {"evidence": pb.ExecutionEvidence(oom_scope=pb.OOM_SCOPE_TENANT)}, skillrun.ProgramError, "oom killed: memory of the tenant"),
            (pb.EXECUTION_END_OOM_KILLED, {"evidence": pb.ExecutionEvidence(oom_scope=pb.OOM_SCOPE_MACHINE)}, skillrun.ProgramError, "oom killed: memory of the machine"),
            (pb.EXECUTION_END_CANCELLED, {}, skillrun.ProgramError, "cancelled by uid 0: why"),
            (pb.EXECUTION_END_SETUP_FAILED, {}, skillrun.ExecutionLost, "execution x1: setup failed: mount: no"),
            (pb.EXECUTION_END_DAEMON_LOST, {}, skillrun.ExecutionLost, "execution x1: daemon lost"),
        ):
            with self.subTest(text):
                evidence = pb.ExecutionEvidence(
                    deadline=pb.EXECUTION_DEADLINE_WALL, cancelled_by="uid 0", cancel_reason="why", setup_step="mount", setup_error="no"
                )
                record = Record().end(end, **{"evidence": evidence, **fields})
                _, client = self.daemon(Execute=lambda r, c: iter(record.events))
                with self.assertRaises(kind) as caught:
                    client.run("s", script="x").check()
                self.assertEqual((str(caught.exception), caught.exception.execution_id), (text, "x1"))


class Credentials(unittest.TestCase):
    def test_a_missing_file_is_an_error_at_once(self):
        missing = "/nowhere/token"
        for connect in (skillrun.connect, aio.connect):
            with self.subTest(connect), self.assertRaisesRegex(OSError, missing):
                connect("unix:///nowhere/s.sock", token_file=missing)


class Addresses(unittest.TestCase):
    def test_targets(self):
        for given, want in (
            ("/run/s.sock", "unix:///run/s.sock"),
            ("unix:///run/s.sock", "unix:///run/s.sock"),
            ("unix:s.sock", "unix:s.sock"),
            ("localhost:7777", "dns:///localhost:7777"),
            ("tcp://localhost:7777", "dns:///localhost:7777"),
            ("[::1]:7777", "dns:///[::1]:7777"),
            ("dns:///host:1", "dns:///host:1"),
        ):
            self.assertEqual(address.target(given), want)
        for bad in ("host", "host:", "host:port", "::1:7777", "tcp://host", "http://host:1", "https://host"):
            with self.subTest(bad), self.assertRaises(ValueError):
                address.target(bad)

    def test_default(self):
        before = os.environ.pop(address.VARIABLE, None)
        try:
            self.assertEqual(address.target(None), "unix:///run/skillrun/skillrun.sock")
            os.environ[address.VARIABLE] = "/x/s.sock"
            self.assertEqual(address.target(None), "unix:///x/s.sock")
        finally:
            os.environ.pop(address.VARIABLE)
            if before is not None:
                os.environ[address.VARIABLE] = before


if __name__ == "__main__":
    unittest.main()
