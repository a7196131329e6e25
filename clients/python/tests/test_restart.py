"""The client while its daemon dies and restarts. The Go test controls the daemon: it
listens on SKILLRUN_CONTROL for commands of one word and answers when each is done."""

import os
import socket
import threading
import unittest

import skillrun


def control(wish):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(os.environ["SKILLRUN_CONTROL"])
        s.sendall(wish.encode() + b"\n")
        answer = s.makefile().readline()
    if answer != "done\n":
        raise AssertionError(f"control {wish}: {answer}")


class Restart(unittest.TestCase):
    def setUp(self):
        self.client = skillrun.connect(patience=skillrun.Patience(tries=40))
        self.addCleanup(self.client.close)

    def test_a_daemon_that_dies_is_said_to_be_lost(self):
        run = self.client.run_code("py", "print('before', flush=True)\nimport time\ntime.sleep(600)")
        seen = b""
        for chunk in run:
            seen += chunk.data
            if seen == b"before\n":
                control("kill")
                control("start")
        self.assertEqual((seen, run.end), (b"before\n", "daemon lost"))
        with self.assertRaises(skillrun.ExecutionLost):
            run.check()

    def test_a_request_waits_for_a_daemon_that_was_there(self):
        list(self.client.skills())
        control("kill")
        # Another thread restarts the daemon once the client has begun to try.
        begun = threading.Event()
        waiting = skillrun.Patience(tries=40)

        class Telling(skillrun.Patience):
            def wait(self, attempt, deadline):
                begun.set()
                return waiting.wait(attempt, deadline)

        self.client._patience = Telling()
        starter = threading.Thread(target=lambda: (begun.wait(60), control("start")))
        starter.start()
        result = self.client.run_code("py", "print('after')").result().check()
        starter.join()
        self.assertEqual((result.stdout, begun.is_set()), (b"after\n", True))

    def test_what_ended_before_is_still_there(self):
        run = self.client.run_code("py", "print('kept')\nopen('f', 'w').write('x')").check()
        control("kill")
        control("start")
        self.assertEqual(self.client.attach(run.id).result().stdout, b"kept\n")
        self.assertEqual([a.path for a in run.artifacts()], ["f"])


if __name__ == "__main__":
    unittest.main()
