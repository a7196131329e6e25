#!/usr/bin/python3
"""Talks to a program while it runs: its standard input is streamed.

The program asks for numbers, one line each, and we answer each question only
after it has come. It has no file: it is text, sent along.
"""

import sys

import skillrun

PROGRAM = """
total = 0
for name in ("first", "second", "third"):
    print(f"{name} number?", flush=True)
    total += float(input())
print(f"the sum is {total:g}")
"""


def main(numbers):
    answers = list(numbers)
    heard, asked = b"", 0
    pipe = skillrun.Pipe()
    try:
        with skillrun.connect() as client, client.run_code("calculator", PROGRAM, stdin=pipe) as run:
            for chunk in run:
                stream = sys.stdout if chunk.stream == "stdout" else sys.stderr
                stream.buffer.write(chunk.data)
                stream.flush()
                # Output arrives in pieces of any size, so a question may be split.
                heard += chunk.data
                while asked < heard.count(b"?\n"):
                    asked += 1
                    if answers:
                        pipe.write(f"{answers.pop(0)}\n".encode())
                    else:
                        pipe.close()
            return 0 if run.ok else 1
    except skillrun.SkillrunError as error:
        print(f"talk: {error}", file=sys.stderr)
        return 125


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["1", "2", "39"]))
