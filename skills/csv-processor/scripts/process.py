#!/usr/bin/env python3
"""Filter, sort, trim and convert CSV files.

Exit codes: 0 done, 1 the input can't be read or the output can't be written,
2 an option, the filter or a column name is wrong.
"""

import argparse
import csv
import json
import os
import sys
from itertools import islice

from expression import ExpressionError, Filter, number

MAX_FIELD = 16 * 1024 * 1024  # characters of one cell; csv's own bound is 128 KiB


class DataError(Exception):
    """The input is not a proper CSV file."""


class UsageError(Exception):
    """The options don't fit the file."""


def rows(reader, header, name):
    """Yield the rows; blank lines are skipped, ragged ones are an error."""
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            raise DataError(f"{name} line {reader.line_num}: {len(row)} fields, but the header has {len(header)}")
        yield row


def header_of(reader, name):
    header = [cell.strip() for cell in next(reader, [])]
    if not any(header):
        raise DataError(f"{name}: no header line")
    for i, column in enumerate(header):
        if column in header[:i]:
            raise DataError(f"{name}: two columns are named {column!r}")
    return header


def index(header, column):
    if column not in header:
        raise UsageError(f"no column {column!r}; there are: {', '.join(header)}")
    return header.index(column)


def order(cell):
    """Sort numbers as numbers, then texts."""
    value = number(cell)
    return (1, 0.0, cell) if value is None else (0, value, "")


def ordered(kept, at, descending):
    """Sort by one column; empty cells come last in either direction."""
    kept = list(kept)
    filled = sorted((r for r in kept if r[at].strip()), key=lambda r: order(r[at]), reverse=descending)
    return filled + [r for r in kept if not r[at].strip()]


def write(stream, form, header, kept):
    """Write the rows and return how many there were."""
    count = 0
    if form == "csv":
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        for row in kept:
            writer.writerow(row)
            count += 1
        return count
    for row in kept:
        stream.write("[\n" if count == 0 else ",\n")
        stream.write("  " + json.dumps(dict(zip(header, row)), ensure_ascii=False))
        count += 1
    stream.write("\n]\n" if count else "[]\n")
    return count


def counted(source, counter):
    for row in source:
        counter[0] += 1
        yield row


def process(args, stream, name):
    """Read, filter, sort, limit and write; return (read, written, filter)."""
    reader = csv.reader(stream, delimiter=args.delimiter, strict=True)
    header = header_of(reader, name)
    chosen = [index(header, c.strip()) for c in args.columns.split(",")] if args.columns else range(len(header))
    keep = Filter(args.filter, header) if args.filter is not None else None
    sort_at = index(header, args.sort) if args.sort else None

    read = [0]
    kept = counted(rows(reader, header, name), read)
    if keep:
        kept = filter(keep, kept)
    if sort_at is not None:
        kept = ordered(kept, sort_at, args.descending)
    if args.limit is not None:
        kept = islice(kept, args.limit)
    kept = ([row[i] for i in chosen] for row in kept)
    columns = [header[i] for i in chosen]

    if not args.output:
        return read[0], write(sys.stdout, args.format, columns, kept), keep
    # Renamed when complete, so that a failed run leaves no partial file, and so that the
    # output may replace the input.
    part = f"{args.output}.part"
    try:
        with open(part, "w", encoding="utf-8", newline="") as out:
            written = write(out, args.format, columns, kept)
        os.replace(part, args.output)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
    return read[0], written, keep


def row_count(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def delimiter(text):
    text = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(text) != 1 or text in '"\r\n':
        raise argparse.ArgumentTypeError(f"{text!r} is neither one character nor 'tab'")
    return text


def arguments(argv):
    parser = argparse.ArgumentParser(description="Filter, sort, trim and convert CSV files.")
    parser.add_argument("file", nargs="?", metavar="INPUT", help="the CSV file; - is standard input")
    parser.add_argument("--input", help="the same as INPUT")
    parser.add_argument("--filter", metavar="EXPRESSION", help="for example \"age > 30 and city in ('Bonn', 'Ulm')\"")
    parser.add_argument("--columns", metavar="A,B", help="keep these columns, in this order")
    parser.add_argument("--sort", metavar="COLUMN", help="sort by this column")
    parser.add_argument("--descending", action="store_true", help="sort from the largest to the smallest")
    parser.add_argument("--limit", type=row_count, metavar="N", help="stop after N rows")
    parser.add_argument("--delimiter", type=delimiter, metavar="CHAR", help="of the input: one character, or tab")
    parser.add_argument("--format", choices=("csv", "json"), help="of the output")
    parser.add_argument("--output", metavar="FILE", help="write there instead of to standard output")
    args = parser.parse_args(argv)
    if (args.file is None) == (args.input is None):
        parser.error("give one input file")
    args.input = args.input if args.file is None else args.file
    if args.delimiter is None:
        args.delimiter = "\t" if args.input.lower().endswith(".tsv") else ","
    if args.format is None:
        args.format = "json" if (args.output or "").lower().endswith(".json") else "csv"
    return args


def run(argv):
    args = arguments(argv)
    csv.field_size_limit(MAX_FIELD)
    sys.stdout.reconfigure(encoding="utf-8", newline="")
    # utf-8-sig: a spreadsheet's export often begins with a byte order mark.
    if args.input == "-":
        sys.stdin.reconfigure(encoding="utf-8-sig", newline="")
        read, written, keep = process(args, sys.stdin, "standard input")
    else:
        with open(args.input, encoding="utf-8-sig", newline="") as stream:
            read, written, keep = process(args, stream, args.input)
    for column, cells in (keep.not_numbers if keep else {}).items():
        print(f"process: column {column!r}: {cells} cells are not numbers and did not match", file=sys.stderr)
    if args.output:
        print(f"{read} rows read, {written} written to {args.output}")


def main(argv):
    try:
        run(argv)
    except ExpressionError as e:
        print(f"process: filter: {e}", file=sys.stderr)
        return 2
    except UsageError as e:
        print(f"process: {e}", file=sys.stderr)
        return 2
    except (DataError, csv.Error) as e:
        print(f"process: {e}", file=sys.stderr)
        return 1
    except UnicodeDecodeError as e:
        print(f"process: the input is not UTF-8: {e.reason} at byte {e.start}", file=sys.stderr)
        return 1
    except OSError as e:
        print(f"process: {e.filename or 'output'}: {e.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
