#!/usr/bin/python3
"""Runs a script of a skill and prints its output as it comes.

    ./run_skill.py calculator scripts/calc.py '2 + 2 * 20'

It exits with the program's code, or with 125 if skillrun itself failed. A stream
that breaks while the program runs is attached again after the last event that was
seen, so nothing is lost and nothing is printed twice.
"""

import sys

import grpc

from connect import executions, exit_code, explain, pb, show

TRIES = 5  # in a row, without a single event


def events(stub, request):
    """Yields the events of an execution, each once, until its outcome."""
    stream, identity, seen, tries = stub.Execute(request), None, 0, 0
    while True:
        try:
            for event in stream:
                tries = 0
                identity = event.execution_id
                if event.sequence <= seen:
                    continue  # a keepalive repeats the last one
                seen = event.sequence
                yield event
                if event.WhichOneof("event") == "outcome":
                    return
        except grpc.RpcError as error:
            # Before the header the request may or may not have started: without an
            # idempotency key it must not be sent again.
            if identity is None or error.code() != grpc.StatusCode.UNAVAILABLE or tries == TRIES:
                raise
        tries += 1
        request = pb.AttachRequest(execution_id=identity, after_sequence=seen)
        # Waits for the connection to stand again, rather than fail at once.
        stream = stub.Attach(request, wait_for_ready=True)


def main(skill, script, *args):
    # If the connection breaks the execution shall go on, for us to attach again.
    request = pb.ExecuteRequest(
        skill=skill, script=script, args=args, on_disconnect=pb.ON_DISCONNECT_CONTINUE
    )
    stub, event = executions(), None
    try:
        for event in events(stub, request):
            kind = event.WhichOneof("event")
            if kind == "output":
                show(event.output)
            elif kind == "outcome":
                explain(event.outcome)
                return exit_code(event.outcome)
    except grpc.RpcError as error:
        print(f"run_skill: {error.code().name}: {error.details()}", file=sys.stderr)
    except KeyboardInterrupt:
        if event is not None:
            stub.Cancel(pb.CancelRequest(execution_id=event.execution_id, reason="interrupted"))
        return 130
    return 125


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
