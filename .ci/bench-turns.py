#!/usr/bin/env python3
"""Prints a table from the JSON reports DIR/base-N.json and DIR/here-N.json of skillrun bench.

A row shows the median of each side over the rounds, and how the two compare. Where a row was measured
in turns with a program without skillrun, the ratios to that program are compared, since they depend
less on what else the machine did; otherwise the values are. "spread" is the distance between the
smallest and the largest of the base's rounds, as a share of their median: a difference below it says
little.
"""

import json
import pathlib
import statistics
import sys


def rounds(directory, side):
    """Returns the measured rows of each round by name."""
    found = []
    for path in sorted(pathlib.Path(directory).glob(side + "-*.json")):
        # The last line is the whole report; each line before it is a row.
        rows = json.loads(path.read_text().splitlines()[-1])["rows"]
        found.append({r["name"]: r for r in rows if r.get("value") is not None})
    return found


def main():
    base, here = rounds(sys.argv[1], "base"), rounds(sys.argv[1], "here")
    if not base or not here:
        sys.exit("no reports in " + sys.argv[1])
    print("| row | before | now | unit | compared | now / before | spread of before |")
    print("|---|---|---|---|---|---|---|")
    for name, row in base[0].items():
        if not all(name in report for report in base + here):
            continue
        # Rows of bytes and of rates without a pair have no ratio that a busy machine leaves alone.
        key = "ratio" if all(r[name].get("ratio") is not None for r in base + here) else "value"
        before = [r[name][key] for r in base]
        now = [r[name][key] for r in here]
        middle = statistics.median(before)
        print("| {} | {:.3g} | {:.3g} | {} | {} | {:.3f} | {:.0%} |".format(
            name,
            statistics.median(r[name]["value"] for r in base),
            statistics.median(r[name]["value"] for r in here),
            row["unit"], key,
            statistics.median(now) / middle,
            (max(before) - min(before)) / middle))
    for name in sorted(set(base[0]) ^ set(here[0])):
        print("only one side has the row", name)


main()
