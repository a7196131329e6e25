"""The client learns the network rules of a program. The Go test's daemon is on a made-up internet with the hosts
web.example and denied.example, and its skill "learner" prints what each URL of its arguments answers."""

import unittest

import skillrun
from skillrun import aio

ASK = {"script": "scripts/ask.py", "args": ["http://web.example/", "http://denied.example/"]}
LEARN = skillrun.Network(deny=["denied.example"], learn=True)


class Learning(unittest.IsolatedAsyncioTestCase):
    def check(self, result):
        result.check()
        self.assertTrue(result.text.startswith("hello, web.example\nhttp://denied.example/ "), result.text)
        self.assertEqual((list(result.learned.allow), result.learned.incomplete), (["web.example:80"], False))

    def test_threads(self):
        with skillrun.connect() as client:
            run = client.run("learner", network=LEARN, **ASK)
            self.assertIsNone(run.learned)
            result = run.result()
            self.check(result)
            self.assertEqual(run.learned, result.learned)
            again = client.run("learner", script="scripts/ask.py", args=["http://web.example/"], network=skillrun.Network(allow=["public"]))
            self.assertIsNone(again.result().learned)
            with self.assertRaises(skillrun.InvalidRequest):
                client.run("learner", network=skillrun.Network(allow=["web.example"], learn=True), **ASK)

    async def test_tasks(self):
        async with aio.connect() as client:
            self.check(await (await client.run("learner", network=LEARN, **ASK)).result())


if __name__ == "__main__":
    unittest.main()
