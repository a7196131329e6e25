"""Pushing folders, and the trace context of calls, against a daemon whose answers come from the test."""

import asyncio
import os
import pathlib
import tempfile
import threading
import unittest

import grpc

import skillrun
from skillrun import aio
from skillrun.v1 import skill_pb2

from .fake import QUICK, Case, Record, abort

SKILL = "---\nname: demo\ndescription: A demo.\n---\nHello\n"


class Push(Case):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)
        self.write("SKILL.md", SKILL)

    def write(self, path, content, mode=0o644):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(mode)

    def both(self, answer):
        """Yields push of both clients of a daemon that answers PushSkill so."""
        daemon, client = self.daemon(PushSkill=answer)
        yield client.push

        def with_asyncio(*args, **options):
            async def push():
                async with aio.connect(daemon.address, patience=QUICK) as client:
                    return await client.push(*args, **options)

            return asyncio.run(push())

        yield with_asyncio

    def test_a_folder_arrives(self):
        large = os.urandom(600_000)
        self.write("scripts/run.py", "print(1)\n", 0o755)
        self.write("data/large.bin", large)
        self.write("empty", b"")
        self.write(".git/config", "not part of a skill")
        self.write("scripts/__pycache__/run.pyc", "nor this")
        (self.folder / "link").symlink_to("data/large.bin")
        (self.folder / "linked").symlink_to("data")
        got = []

        def answer(requests, context):
            got.append(list(requests))
            return skill_pb2.PushSkillResponse(name="demo", version=skill_pb2.SkillVersion(digest="sha256:d"))

        for push in self.both(answer):
            told = []
            reply = push(self.folder, name="demo", source="https://example.com/demo", on_progress=lambda n, of: told.append((n, of)))
            self.assertEqual((reply.name, reply.version.digest), ("demo", "sha256:d"))
            header, *rest = got.pop()
            size = len(large) + len(SKILL) + len("print(1)\n")
            self.assertEqual((header.header.name, header.header.source, header.header.size_bytes), ("demo", "https://example.com/demo", size))
            self.assertEqual(told[-1], (size, size))
            files = {}
            for message in rest:
                if message.HasField("entry"):
                    entry = message.entry
                    files[entry.path] = [entry.executable, entry.size_bytes, entry.link_target, entry.data]
                    last = entry.path
                else:
                    self.assertLessEqual(len(message.data), 256 << 10)
                    files[last][3] += message.data
            self.assertEqual(
                files,
                {
                    "SKILL.md": [False, len(SKILL), "", SKILL.encode()],
                    "scripts/run.py": [True, 9, "", b"print(1)\n"],
                    "data/large.bin": [False, len(large), "", large],
                    "empty": [False, 0, "", b""],
                    "link": [False, 0, "data/large.bin", b""],
                    "linked": [False, 0, "data", b""],
                },
            )

    def test_a_refusal(self):
        def answer(requests, context):
            abort(context, grpc.StatusCode.PERMISSION_DENIED, "needs the role admin", "ROLE_REQUIRED")

        self.write("large", bytes(2 << 20))  # is not sent to its end
        for push in self.both(answer):
            with self.assertRaises(skillrun.Denied) as caught:
                push(self.folder)
            self.assertEqual(caught.exception.reason, "ROLE_REQUIRED")

    def test_local_errors(self):
        """Nothing is imported: the stream does not end, it is cancelled."""
        ended = []

        def answer(requests, context):
            cancelled = threading.Event()
            if not context.add_callback(cancelled.set):
                cancelled.set()
            try:
                for _ in requests:
                    pass
                # grpcio can also end the loop without an exception when the call is cancelled, and
                # learn of the cancellation later. A client whose stream has ended waits for the answer.
                if not cancelled.wait(30):
                    ended.append("whole")
            except Exception:
                pass
            return skill_pb2.PushSkillResponse()

        self.write("z", bytes(1 << 20))
        for push in self.both(answer):
            self.write("z", bytes(1 << 20))

            def shorten(sent, total):
                os.truncate(self.folder / "z", 300_000)

            with self.assertRaises(skillrun.InputError) as caught:
                push(self.folder, on_progress=shorten)
            self.assertIn("z: it became shorter than 1048576 bytes", str(caught.exception))

            def fails(sent, total):
                raise KeyError("mine")

            with self.assertRaises(KeyError):
                push(self.folder, on_progress=fails)
            with self.assertRaises(skillrun.InputError):
                push(self.folder / "none")
            os.mkfifo(self.folder / "pipe")
            with self.assertRaises(skillrun.InputError) as caught:
                push(self.folder)
            self.assertEqual(str(caught.exception), "push: pipe: is neither a file nor a link")
            os.unlink(self.folder / "pipe")
        self.assertEqual(ended, [])

    def test_a_folder_that_becomes_a_link(self):
        """Another program may change the folder during the push. No file from elsewhere is sent."""
        elsewhere = tempfile.TemporaryDirectory()
        self.addCleanup(elsewhere.cleanup)
        (pathlib.Path(elsewhere.name) / "run.py").write_bytes(b"a secret")
        sent = []

        def answer(requests, context):
            try:
                sent.extend(message.entry.data for message in requests)
            except Exception:
                pass  # the call is cancelled
            return skill_pb2.PushSkillResponse()

        scripts = self.folder / "a" / "scripts"
        for push in self.both(answer):
            self.write("a/scripts/run.py", "print(1)")

            def exchange(done, total):
                if not scripts.is_symlink():
                    scripts.rename(self.folder / "moved")
                    scripts.symlink_to(elsewhere.name)

            with self.assertRaises(skillrun.InputError):
                push(self.folder, on_progress=exchange)
            scripts.unlink()
            (self.folder / "moved" / "run.py").unlink()
            (self.folder / "moved").rmdir()
        self.assertNotIn(b"a secret", sent)


class Trace(Case):
    def test_each_kind_of_call_sends_the_trace_context(self):
        """Both clients send it with calls that answer once and with streams in each direction."""
        got = []

        def note(context, answer):
            got.append(dict(context.invocation_metadata()).get("traceparent"))
            return answer

        record = Record().exit()
        daemon, _ = self.daemon(
            GetSkill=lambda r, c: note(c, skill_pb2.Skill(name="s")),
            PushSkill=lambda r, c: note(c, list(r) and skill_pb2.PushSkillResponse()),
            Execute=lambda r, c: note(c, iter(record.events)),
            ExecuteInteractive=lambda r, c: note(c, (list(r), iter(record.events))[1]),
        )
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

        with skillrun.connect(daemon.address, patience=QUICK, traceparent=lambda: parent) as client:
            client.skill("s")
            client.push(made.name)
            client.run("s", script="x").wait()
            client.run("s", script="x", stdin=iter([b"a"])).wait()
        self.assertEqual(got, [parent] * 4)
        got.clear()

        async def calls():
            async with aio.connect(daemon.address, patience=QUICK, traceparent=lambda: parent) as client:
                await client.skill("s")
                await client.push(made.name)
                await (await client.run("s", script="x")).wait()
                await (await client.run("s", script="x", stdin=iter([b"a"]))).wait()

        asyncio.run(calls())
        self.assertEqual(got, [parent] * 4)
        got.clear()
        with skillrun.connect(daemon.address, patience=QUICK, traceparent=lambda: None) as client:
            client.skill("s")
        self.assertEqual(got, [None])


if __name__ == "__main__":
    unittest.main()
