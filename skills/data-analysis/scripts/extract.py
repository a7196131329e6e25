#!/usr/bin/env python3
"""Extract rows and columns of a CSV or JSON file, or a summary of it.

Exit codes: 0 done, 1 the file can't be read or written, 2 an option, column
or filter is wrong, 3 pandas is missing.
"""

import argparse
import json
import sys

import table as tables


def row_count(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def options():
    parser = argparse.ArgumentParser(description="Extract rows and columns of a CSV or JSON file.")
    tables.add_input(parser)
    parser.add_argument("--columns", metavar="A,B", help="keep these columns, in this order")
    parser.add_argument("--sort", metavar="COLUMN", help="sort by this column")
    parser.add_argument("--descending", action="store_true", help="sort from the largest to the smallest")
    parser.add_argument("--limit", type=row_count, metavar="N", help="the first N rows")
    parser.add_argument("--summary", action="store_true", help="one JSON object about the rows instead of the rows")
    parser.add_argument("--format", choices=("csv", "json"), help="default: by the output file's ending, else csv")
    parser.add_argument("--output", metavar="FILE", help="write there instead of to standard output")
    return parser


def dump(value):
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def as_json(table):
    rows = table.itertuples(index=False, name=None)
    return dump([{c: tables.plain(v) for c, v in zip(table.columns, row)} for row in rows])


def as_csv(table):
    """Print whole numbers as such: pandas makes them floats where a value is missing."""
    for name in table.select_dtypes(include="float"):
        known = table[name].dropna()
        if len(known) < len(table) and (known % 1 == 0).all():
            table = table.assign(**{name: table[name].astype("Int64")})
    return table.to_csv(index=False, lineterminator="\n")


def summary(table):
    numbers = table[tables.numeric(table)]
    described = numbers.describe() if len(numbers.columns) else {}
    return dump(
        {
            "rows": len(table),
            "columns": list(table.columns),
            "statistics": {c: {k: tables.plain(v) for k, v in described[c].items()} for c in described},
            "missing_values": {c: int(n) for c, n in table.isna().sum().items()},
        }
    )


def main(argv):
    parser = options()
    args = parser.parse_args(argv)
    table = tables.load(args, parser)
    if args.sort:
        tables.column(table, args.sort)
        try:
            # Stable, so that equal rows keep the file's order.
            table = table.sort_values(args.sort, ascending=not args.descending, kind="stable", na_position="last")
        except TypeError:
            raise tables.Failure(tables.USAGE_ERROR, f"column {args.sort!r} mixes numbers and texts") from None
    if args.limit is not None:
        table = table.head(args.limit)
    if args.columns:
        table = table[tables.columns(table, args.columns)]

    by_ending = "json" if (args.output or "").lower().endswith(".json") else "csv"
    if args.summary:
        text = summary(table)
    elif (args.format or by_ending) == "json":
        text = as_json(table)
    else:
        text = as_csv(table)
    if args.output:
        tables.write(args.output, text)
        print(f"{len(table)} rows, {len(table.columns)} columns written to {args.output}")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    sys.exit(tables.run("extract", main, sys.argv[1:]))
