"""The calls for sessions against a real daemon, which the Go test starts as for test_daemon."""

import hashlib
import io
import os
import pathlib
import tempfile
import unittest
import uuid

import skillrun
from skillrun import aio

from .proxy import Proxy

LARGE = 6 << 20


class Cutting(io.BytesIO):
    """Calls cut before the first byte is written."""

    def __init__(self, cut):
        super().__init__()
        self._cut = cut

    def write(self, data):
        if not self.tell():
            self._cut()
        return super().write(data)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def folder(test):
    """A folder that goes at the end of the test."""
    made = tempfile.TemporaryDirectory()
    test.addCleanup(made.cleanup)
    return pathlib.Path(made.name)


class Threads(unittest.TestCase):
    def setUp(self):
        self.client = skillrun.connect()
        self.addCleanup(self.client.close)
        self.session = self.client.create_session().session_id
        self.proxy = Proxy(os.environ["SKILLRUN_ADDRESS"])
        self.addCleanup(self.proxy.close)
        self.cut_client = skillrun.connect(self.proxy.address)
        self.addCleanup(self.cut_client.close)

    def content(self, path, version=0):
        to = io.BytesIO()
        self.client.get_file(self.session, path, to, version)
        return to.getvalue()

    def test_a_session_from_start_to_end(self):
        label = uuid.uuid4().hex
        made = self.client.create_session(labels={"task": label, "a": "1"}, idle_ttl=3600, ttl=7200, max_bytes=1 << 20, max_files=9)
        self.assertEqual((made.idle_ttl.seconds, made.ttl.seconds, made.max_bytes, made.max_files), (3600, 7200, 1 << 20, 9))
        self.assertEqual(self.client.session(made.session_id).labels, {"task": label, "a": "1"})
        self.assertEqual([s.session_id for s in self.client.sessions({"task": label})], [made.session_id])
        self.assertIn(self.session, [s.session_id for s in self.client.sessions()])
        changed = self.client.update_session(made.session_id, idle_ttl=60)
        self.assertEqual((changed.idle_ttl.seconds, changed.ttl.seconds, changed.labels["a"]), (60, 7200, "1"))
        self.assertEqual(self.client.update_session(made.session_id, labels={"b": "2"}).labels, {"b": "2"})
        self.assertEqual(self.client.update_session(made.session_id, labels={}).labels, {})
        self.client.delete_session(made.session_id)
        with self.assertRaises(skillrun.NotFound) as refused:
            self.client.session(made.session_id)
        self.assertEqual(refused.exception.reason, "SESSION_NOT_FOUND")

    def test_files_go_in_and_out(self):
        script = folder(self) / "hello"
        script.write_text("#!/bin/sh\necho from the session\n")
        self.assertEqual(self.client.put_file(self.session, "in/a.csv", b"1,2\n").number, 1)
        self.assertEqual(self.client.put_file(self.session, "bin/hello", script, executable=True).number, 2)
        self.assertEqual(self.client.put_file(self.session, "bin/hello", script, executable=True).number, 2)
        self.assertEqual(self.client.put_file(self.session, b"not-utf-8-\xff", b"").number, 3)
        code = "import subprocess; subprocess.run(['bin/hello'], check=True); open('out.csv', 'w').write(open('in/a.csv').read() * 2)"
        run = self.client.run_code("py", code, session=skillrun.Session(self.session)).result().check()
        self.assertEqual((run.stdout, run.outcome.session.committed_version), (b"from the session\n", 4))
        files = {file.raw_path or file.path: file for file in self.client.list_files(self.session)}
        self.assertEqual(list(files), ["bin/hello", "in/a.csv", b"not-utf-8-\xff", "out.csv"])
        self.assertEqual((files["out.csv"].size_bytes, files["out.csv"].sha256), (8, sha256(b"1,2\n1,2\n")))
        self.assertTrue(files["bin/hello"].executable and not files["out.csv"].executable)
        self.assertEqual([self.content(f) for f in files.values()], [script.read_bytes(), b"1,2\n", b"", b"1,2\n1,2\n"])
        self.assertEqual(self.content(b"not-utf-8-\xff"), b"")
        self.client.put_file(self.session, "in/a.csv", b"new")
        self.assertEqual((self.content("in/a.csv"), self.content("in/a.csv", version=4)), (b"new", b"1,2\n"))
        self.assertEqual([f.path for f in self.client.list_files(self.session, version=1)], ["in/a.csv"])
        self.assertEqual([v.number for v in self.client.session_versions(self.session)], [5, 4, 3, 2, 1])

    def test_a_cut_upload_goes_on(self):
        data = os.urandom(LARGE)
        local = folder(self) / "large"
        local.write_bytes(data)
        self.proxy.cut_after(LARGE * 2 // 3)
        self.assertEqual(self.cut_client.put_file(self.session, "large", local).number, 1)
        self.assertEqual((sha256(self.content("large")), self.proxy.cuts), (sha256(data), 1))
        # A second upload from the first byte on would need five thirds.
        self.assertLess(self.proxy.sent, LARGE * 4 // 3)

    def test_a_cut_download_goes_on_in_its_version(self):
        data = os.urandom(LARGE)
        self.client.put_file(self.session, "large", data)

        def cut():
            self.client.put_file(self.session, "large", b"the next version")
            self.proxy.cut()

        to = Cutting(cut)
        file = self.cut_client.get_file(self.session, "large", to)
        self.assertEqual((sha256(to.getvalue()), file.sha256, self.proxy.cuts), (sha256(data), sha256(data), 1))

    def test_refusals(self):
        for path in ("../up", "", "/abs"):
            with self.assertRaises(skillrun.InvalidRequest):
                self.client.put_file(self.session, path, b"x")
        with self.assertRaises(skillrun.NotFound):
            self.client.get_file(self.session, "nothing", io.BytesIO())
        for content in (folder(self), folder(self) / "nothing"):
            with self.assertRaises(skillrun.InputError):
                self.client.put_file(self.session, "a", content)
        with self.assertRaises(TypeError):
            self.client.put_file(self.session, "a", "text")
        with self.client.run_code("py", "print(1, flush=True); input()", stdin=skillrun.Pipe(), session=skillrun.Session(self.session)) as run:
            chunks = iter(run)  # a run whose iterator is dropped is cancelled
            next(chunks)
            with self.assertRaises(skillrun.FailedPrecondition):
                self.client.delete_session(self.session)
        self.assertEqual(list(self.client.list_files(self.session)), [])

    def test_a_file_that_shrinks(self):
        local = folder(self) / "large"
        local.write_bytes(bytes(LARGE))
        put = self.client._send

        def shrink(*args):
            os.truncate(local, 10)
            return put(*args)

        self.client._send = shrink
        with self.assertRaisesRegex(skillrun.InputError, "became shorter"):
            self.client.put_file(self.session, "large", local)
        self.assertEqual(list(self.client.list_files(self.session)), [])


class Tasks(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = aio.connect()
        self.addAsyncCleanup(self.client.close)
        self.session = (await self.client.create_session()).session_id
        self.proxy = Proxy(os.environ["SKILLRUN_ADDRESS"])
        self.addCleanup(self.proxy.close)
        self.cut_client = aio.connect(self.proxy.address)
        self.addAsyncCleanup(self.cut_client.close)

    async def content(self, path, version=0):
        to = io.BytesIO()
        await self.client.get_file(self.session, path, to, version)
        return to.getvalue()

    async def test_a_session_from_start_to_end(self):
        label = uuid.uuid4().hex
        made = await self.client.create_session(labels={"task": label}, ttl=7200)
        self.assertEqual((await self.client.session(made.session_id)).ttl.seconds, 7200)
        self.assertEqual([s.session_id async for s in self.client.sessions({"task": label})], [made.session_id])
        self.assertEqual((await self.client.update_session(made.session_id, labels={"b": "2"})).labels, {"b": "2"})
        await self.client.delete_session(made.session_id)
        with self.assertRaises(skillrun.NotFound):
            await self.client.session(made.session_id)

    async def test_files_go_in_and_out(self):
        self.assertEqual((await self.client.put_file(self.session, "a.csv", b"1,2\n")).number, 1)
        run = await self.client.run_code("py", "open('b', 'w').write(open('a.csv').read() * 2)", session=skillrun.Session(self.session))
        (await run.result()).check()
        self.assertEqual([(f.path, f.size_bytes) async for f in self.client.list_files(self.session)], [("a.csv", 4), ("b", 8)])
        self.assertEqual(await self.content("b"), b"1,2\n1,2\n")
        self.assertEqual([v.number for v in await self.client.session_versions(self.session)], [2, 1])
        with self.assertRaises(skillrun.InvalidRequest):
            await self.client.put_file(self.session, "../up", b"x")
        with self.assertRaises(skillrun.InputError):
            await self.client.put_file(self.session, "a", folder(self))

    async def test_a_cut_upload_goes_on(self):
        data = os.urandom(LARGE)
        self.proxy.cut_after(LARGE * 2 // 3)
        self.assertEqual((await self.cut_client.put_file(self.session, "large", data)).number, 1)
        self.assertEqual((sha256(await self.content("large")), self.proxy.cuts), (sha256(data), 1))
        self.assertLess(self.proxy.sent, LARGE * 4 // 3)

    async def test_a_cut_download_goes_on(self):
        data = os.urandom(LARGE)
        await self.client.put_file(self.session, "large", data)
        to = Cutting(self.proxy.cut)
        await self.cut_client.get_file(self.session, "large", to)
        self.assertEqual((sha256(to.getvalue()), self.proxy.cuts), (sha256(data), 1))


if __name__ == "__main__":
    unittest.main()
