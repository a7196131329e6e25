#!/usr/bin/python3
"""Talks to a program while it runs: its standard input is streamed.

The program asks for numbers, one line each, and we answer each question only
after it has come. It has no file: it is text, sent along.
"""

import queue
import sys

import grpc

from connect import executions, exit_code, explain, pb, show

PROGRAM = """
total = 0
for name in ("first", "second", "third"):
    print(f"{name} number?")
    total += float(input())
print(f"the sum is {total:g}")
"""


def main(numbers):
    answers = list(numbers)
    heard, asked = b"", 0
    # What we send: gRPC takes it from here, in a thread of its own, up to None.
    sending = queue.Queue()
    sending.put(
        pb.ExecuteInteractiveRequest(
            start=pb.ExecuteRequest(skill="calculator", code=pb.Code(text=PROGRAM))
        )
    )
    try:
        for event in executions().ExecuteInteractive(iter(sending.get, None)):
            kind = event.WhichOneof("event")
            if kind == "output":
                show(event.output)
                # Output comes in pieces of any size: a question may be cut in two.
                heard += event.output.data
                while asked < heard.count(b"?\n"):
                    asked += 1
                    if answers:
                        line = f"{answers.pop(0)}\n".encode()
                        sending.put(pb.ExecuteInteractiveRequest(stdin=line))
                    else:
                        sending.put(pb.ExecuteInteractiveRequest(close_stdin=pb.CloseStdin()))
            elif kind == "outcome":
                explain(event.outcome)
                return exit_code(event.outcome)
    except grpc.RpcError as error:
        print(f"talk: {error.code().name}: {error.details()}", file=sys.stderr)
    finally:
        sending.put(None)
    return 125


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["1", "2", "39"]))
