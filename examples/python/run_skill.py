#!/usr/bin/python3
"""Runs a script of a skill and prints its output as it arrives.

    ./run_skill.py calculator scripts/calc.py '2 + 2 * 20'

It exits with the program's code, or with 125 if skillrun itself failed. A stream
that breaks while the program runs is attached again by the client, so nothing is
lost and nothing is printed twice; Ctrl-C cancels the execution.
"""

import sys

import skillrun


def main(skill, script, *args):
    try:
        with skillrun.connect() as client, client.run(skill, script=script, args=args) as run:
            for chunk in run:
                stream = sys.stdout if chunk.stream == "stdout" else sys.stderr
                stream.buffer.write(chunk.data)
                stream.flush()
            usage = run.outcome.usage
            took, peak = usage.wall_time.ToTimedelta().total_seconds(), usage.memory_peak_bytes >> 20
            print(f"[{run.end}, exit code {run.exit_code}, {took:.3f} s, {peak} MiB] {run.outcome.advice}".rstrip(), file=sys.stderr)
            code = run.exit_code
    except skillrun.SkillrunError as error:
        print(f"run_skill: {error}", file=sys.stderr)
        return 125
    except KeyboardInterrupt:
        return 130
    if code is None:
        return 125  # no program ran
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
