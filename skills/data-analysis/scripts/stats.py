#!/usr/bin/env python3
"""Print statistics of a CSV or JSON file: distributions, groups, correlations.

Exit codes: 0 done, 1 the file can't be read or written, 2 an option, column
or filter is wrong, 3 pandas is missing.
"""

import argparse
import json
import sys

import table as tables

GROUP_STATISTICS = ("count", "mean", "median", "min", "max")
MAX_GROUPS = 1_000


def options():
    parser = argparse.ArgumentParser(description="Print statistics of a CSV or JSON file.")
    tables.add_input(parser)
    parser.add_argument("--columns", metavar="A,B", help="only these columns")
    parser.add_argument("--group-by", metavar="COLUMN", help="statistics by the values of this column")
    parser.add_argument("--correlations", action="store_true", help="between the numeric columns (Pearson)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--output", metavar="FILE", help="write there instead of to standard output")
    return parser


def distribution(series, is_number):
    count = int(series.count())
    result = {"type": "number" if is_number else "text", "count": count, "missing": len(series) - count}
    if is_number:
        values = {
            "mean": series.mean(),
            "std": series.std(),
            "min": series.min(),
            "q1": series.quantile(0.25),
            "median": series.median(),
            "q3": series.quantile(0.75),
            "max": series.max(),
        }
    else:
        # As text, because a JSON column may hold lists, which cannot be counted.
        frequencies = series.dropna().astype(str).value_counts()
        values = {"unique": len(frequencies)}
        if count:
            values["frequency"] = frequencies.iloc[0]
            values["top"] = min(frequencies.index[frequencies == frequencies.iloc[0]])
    return {**result, **{k: tables.plain(v) for k, v in values.items()}}


def groups(table, by, numbers):
    result = {}
    grouped = table.groupby(tables.column(table, by), sort=True)
    if grouped.ngroups > MAX_GROUPS:
        raise tables.Failure(tables.USAGE_ERROR, f"column {by!r} has more than {MAX_GROUPS} values")
    for name, part in grouped:
        result[str(tables.plain(name))] = {
            c: {s: tables.plain(getattr(part[c], s)()) for s in GROUP_STATISTICS} for c in numbers if c != by
        }
    return result


def correlations(table, numbers):
    if len(numbers) < 2:
        raise tables.Failure(tables.USAGE_ERROR, "correlations need two numeric columns")
    matrix = table[numbers].corr()
    return {a: {b: tables.plain(matrix.at[a, b]) for b in numbers} for a in numbers}


def show(value):
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def grid(head, lines):
    """Lay out rows of cells in columns; the first is left-aligned."""
    cells = [[str(c) for c in head]] + [[show(c) for c in line] for line in lines]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "\n".join(
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip() for row in cells
    )


def as_text(result):
    parts = [f"{result['rows']} rows, {len(result['columns'])} columns"]
    for kind, title, keys in (
        ("number", "Numbers", ("count", "missing", "mean", "std", "min", "q1", "median", "q3", "max")),
        ("text", "Texts", ("count", "missing", "unique", "frequency", "top")),
    ):
        lines = [[name, *(d.get(k) for k in keys)] for name, d in result["columns"].items() if d["type"] == kind]
        if lines:
            parts.append(f"{title}\n" + grid(["column", *keys], lines))
    if "correlations" in result:
        names = list(result["correlations"])
        lines = [[a, *(result["correlations"][a][b] for b in names)] for a in names]
        parts.append("Correlations (Pearson)\n" + grid(["", *names], lines))
    if "groups" in result:
        lines = [
            [group, name, *(values[s] for s in GROUP_STATISTICS)]
            for group, found in result["groups"].items()
            for name, values in found.items()
        ]
        parts.append(f"By {result['group_by']}\n" + grid(["group", "column", *GROUP_STATISTICS], lines))
    return "\n\n".join(parts) + "\n"


def main(argv):
    parser = options()
    args = parser.parse_args(argv)
    table = tables.load(args, parser)
    chosen = tables.columns(table, args.columns) if args.columns else list(table.columns)
    numbers = [c for c in tables.numeric(table) if c in chosen]
    result = {"rows": len(table), "columns": {c: distribution(table[c], c in numbers) for c in chosen}}
    if args.correlations:
        result["correlations"] = correlations(table, numbers)
    if args.group_by:
        result["group_by"] = args.group_by
        result["groups"] = groups(table, args.group_by, numbers)

    text = as_text(result)
    if args.format == "json":
        text = json.dumps(result, ensure_ascii=False, indent=2) + "\n"
    if args.output:
        tables.write(args.output, text)
        print(f"statistics of {len(chosen)} columns written to {args.output}")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    sys.exit(tables.run("stats", main, sys.argv[1:]))
