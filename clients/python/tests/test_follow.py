"""Following a run: each byte arrives once, whatever happens to the stream."""

import asyncio
import gc
import threading
import unittest
import warnings

import grpc

import skillrun
from skillrun import aio
from skillrun.v1 import execution_pb2 as pb

from .fake import Case, Record, abort, header


class Following(Case):
    def test_chunks_result_and_outcome(self):
        record = Record().out("é\n".encode()[:1]).err(b"e").out("é\n".encode()[1:]).exit(3)
        _, client = self.daemon(Execute=lambda r, c: iter(record.events))
        run = client.run("s", script="x.py")
        self.assertEqual((run.id, run.header.skill, run.outcome, run.exit_code, run.end), ("x1", "s", None, None, ""))
        chunks = [(c.stream, c.data, c.text) for c in run]
        want = [("stdout", b"\xc3", ""), ("stderr", b"e", "e"), ("stdout", b"\xa9\n", "é\n")]
        self.assertEqual(chunks, want)
        self.assertEqual((run.exit_code, run.ok, run.end), (3, False, "exited"))
        with self.assertRaises(skillrun.ProgramError) as caught:
            run.check()
        self.assertEqual((caught.exception.exit_code, str(caught.exception)), (3, "exit status 3"))
        result = client.run("s", script="x.py").result()
        self.assertEqual((result.stdout, result.stderr, result.text, result.ok), ("é\n".encode(), b"e", "é\n", False))
        with self.assertRaises(skillrun.ProgramError):
            result.check()

    def test_broken_streams_lose_nothing(self):
        record = Record()
        for i in range(100):
            record.out(b"%d " % i) if i % 3 else record.err(b"%d " % i)
        record.exit()
        breaks = []

        def stream(request, context):
            after = getattr(request, "after_sequence", 0)
            for event in record.after(after)[:12]:
                yield event
            if after + 12 >= len(record.events):
                return
            breaks.append(after)
            if len(breaks) % 3 == 0:
                return  # the stream ends without an outcome
            code = grpc.StatusCode.UNAVAILABLE if len(breaks) % 3 == 1 else grpc.StatusCode.INTERNAL
            abort(context, code, "going away")

        daemon, client = self.daemon(
            Execute=stream, AttachExecution=stream, GetExecution=lambda r, c: pb.Execution(execution_id="x1", last_sequence=len(record.events))
        )
        run = client.run("s", code="")
        sequences = [event.sequence for event in run.events()]
        self.assertEqual(sequences, list(range(1, len(record.events) + 1)))
        run = client.run("s", code="")
        result = run.result()
        self.assertEqual(result.stdout, b"".join(b"%d " % i for i in range(100) if i % 3))
        self.assertEqual(result.stderr, b"".join(b"%d " % i for i in range(100) if not i % 3))
        self.assertEqual(len(daemon.asked("Execute")), 2)
        self.assertGreaterEqual(len(daemon.asked("AttachExecution")), 12)

    def test_positions_in_the_queue_are_events(self):
        events = Record().out(b"ab").exit().events
        for position in (1, 2):
            events.insert(1, pb.ExecutionEvent(execution_id="x1", sequence=1, queued=pb.ExecutionQueued(position=position)))
        _, client = self.daemon(Execute=lambda r, c: iter(events))
        run = client.run("s", code="")
        seen = [(e.WhichOneof("event"), e.sequence, e.queued.position) for e in run.events()]
        self.assertEqual(seen[:4], [("header", 1, 0), ("queued", 1, 2), ("queued", 1, 1), ("started", 2, 0)])
        self.assertEqual(client.run("s", code="").result().stdout, b"ab")

    def test_refusals_and_connections(self):
        record = Record()
        for port in (80, 81):
            record._add(denied=pb.NetworkDenial(protocol="tcp", address="10.0.0.1", port=port, rule="private"))
        record.exit()
        record.events[-1].outcome.usage.network.connections.add(name="example.com", port=443)

        def broken(request, context):
            yield from record.events[:3]
            abort(context, grpc.StatusCode.UNAVAILABLE, "away")

        # The stream that follows repeats an event.
        daemon, client = self.daemon(Execute=broken, AttachExecution=lambda r, c: iter(record.after(r.after_sequence - 1)))
        run = client.run("s", code="")
        self.assertEqual((run.denied, run.connections), ([], []))
        run.wait()
        self.assertEqual([d.port for d in run.denied], [80, 81])
        self.assertEqual([(c.name, c.port) for c in run.connections], [("example.com", 443)])

        async def same():
            async with aio.connect(daemon.address) as client:
                run = await client.run("s", code="")
                await run.wait()
                return [d.port for d in run.denied], [c.port for c in run.connections]

        self.assertEqual(asyncio.run(same()), ([80, 81], [443]))

    def test_repeats_are_dropped_and_gaps_healed(self):
        whole = Record().out(b"ab").out(b"cd").out(b"ef").exit().events
        for name, first in {"repeated": [0, 1, 2, 2, 1, 3, 4, 5], "left out": [0, 1, 3]}.items():
            with self.subTest(name):
                daemon, client = self.daemon(
                    Execute=lambda r, c: iter([whole[i] for i in first]),
                    AttachExecution=lambda r, c: iter(whole[r.after_sequence :]),
                )
                self.assertEqual(client.run("s", code="").result().stdout, b"abcdef")
                attached = [r.after_sequence for r in daemon.asked("AttachExecution")]
                self.assertEqual(attached, [] if name == "repeated" else [2])

    def test_a_wrong_offset_is_data_loss_and_cancels(self):
        events = Record().out(b"ab").out(b"cd").exit().events
        events[3].output.offset_bytes = 7
        daemon, client = self.daemon(
            Execute=lambda r, c: iter(events), CancelExecution=lambda r, c: pb.Execution(outcome=pb.ExecutionOutcome(end=pb.EXECUTION_END_CANCELLED))
        )
        with self.assertRaises(skillrun.DataLoss) as caught:
            client.run("s", code="").result()
        self.assertIn("a chunk at 7 follows byte 2", str(caught.exception))
        self.assertEqual((daemon.asked("AttachExecution"), len(daemon.asked("CancelExecution"))), ([], 1))

    def test_attaching_gives_up(self):
        for code, tries in ((grpc.StatusCode.UNAVAILABLE, 4), (grpc.StatusCode.NOT_FOUND, 1)):
            with self.subTest(code.name):
                daemon, client = self.daemon(
                    Execute=lambda r, c: iter([header()]),
                    GetExecution=lambda r, c: pb.Execution(last_sequence=9),
                    AttachExecution=lambda r, c, code=code: abort(c, code, "away"),
                )
                with self.assertRaises(skillrun.CallError) as caught:
                    client.run("s", code="").result()
                self.assertEqual(caught.exception.code, code)
                self.assertEqual(len(daemon.asked("AttachExecution")), tries)

    def test_a_stream_after_the_last_event_asks_how_it_ended(self):
        record = Record().out(b"x").exit(4)
        _, client = self.daemon(
            AttachExecution=lambda r, c: iter(record.after(r.after_sequence)),
            GetExecution=lambda r, c: pb.Execution(last_sequence=4, outcome=record.events[-1].outcome),
        )
        run = client.attach("x1", after_sequence=4)
        self.assertEqual((run.result().stdout, run.exit_code), (b"", 4))

    def test_attach_goes_on_where_it_left(self):
        record = Record().out(b"one ").out(b"two").exit()
        daemon, client = self.daemon(
            AttachExecution=lambda r, c: iter(record.after(r.after_sequence)), CancelExecution=lambda r, c: pb.Execution(execution_id="x1")
        )
        for _ in client.attach("x1"):
            break
        run = client.attach("x1", after_sequence=3)
        self.assertEqual(run.result().stdout, b"two")
        self.assertEqual((run.last_sequence, daemon.asked("CancelExecution")), (5, []))


class Leaving(Case):
    """However the caller leaves, the execution is cancelled once, with a reason."""

    def live(self):
        """A daemon whose program prints one line and then hangs until it is cancelled."""
        cancelled = threading.Event()

        def execute(request, context):
            yield from Record().out(b"line\n").events
            context.add_callback(cancelled.set)
            cancelled.wait(60)

        def cancel(request, context):
            cancelled.set()
            return pb.Execution(outcome=pb.ExecutionOutcome(end=pb.EXECUTION_END_CANCELLED))

        daemon, client = self.daemon(Execute=execute, CancelExecution=cancel)
        self.addCleanup(cancelled.set)
        return daemon, client, cancelled

    def test_break(self):
        daemon, client, _ = self.live()
        for chunk in client.run("s", code=""):
            break
        self.assertEqual([(r.execution_id, r.reason) for r in daemon.asked("CancelExecution")], [("x1", "the caller left")])

    def test_exception_in_the_loop(self):
        daemon, client, _ = self.live()
        run = client.run("s", code="")
        with self.assertRaises(KeyError):
            for chunk in run:
                raise KeyError
        self.assertEqual((len(daemon.asked("CancelExecution")), run.end), (1, "cancelled"))

    def test_with_block(self):
        daemon, client, _ = self.live()
        with client.run("s", code="") as run:
            next(iter(run.events()))
        self.assertEqual((len(daemon.asked("CancelExecution")), run.end), (1, "cancelled"))

    def test_client_closed(self):
        daemon, client, _ = self.live()
        run = client.run("s", code="")
        client.close()
        self.assertEqual((len(daemon.asked("CancelExecution")), run.end), (1, "cancelled"))
        with self.assertRaises(skillrun.CallError):
            client.run("s", code="")

    def test_dropped(self):
        daemon, client, cancelled = self.live()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client.run("s", code="")
            gc.collect()
        self.assertTrue(cancelled.wait(60))
        self.assertIn("x1", str(caught[0].message))

    def test_detached_and_attached_are_left_alone(self):
        daemon, client, _ = self.live()
        self.assertEqual(client.run("s", code="").detach(), "x1")
        self.assertEqual(daemon.asked("Execute")[0].on_disconnect, pb.ON_DISCONNECT_CONTINUE)
        client.close()
        self.assertEqual(daemon.asked("CancelExecution"), [])

    def test_deadline(self):
        daemon, client, _ = self.live()
        run = client.run("s", code="", deadline=2)
        with self.assertRaises(skillrun.DeadlineExceeded):
            run.wait()
        self.assertEqual((len(daemon.asked("CancelExecution")), run.end), (1, "cancelled"))


if __name__ == "__main__":
    unittest.main()
