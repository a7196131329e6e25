"""What extract.py, stats.py and visualize.py share: reading a table, filters, errors.

pandas is imported when a table is read, so that --help works without it.
"""

import ast
import json
import os
import re
import sys
import warnings

FORMATS = {".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}
MAX_FILTER = 10_000  # characters

READ_ERROR, USAGE_ERROR, MISSING_PACKAGE = 1, 2, 3


class Failure(Exception):
    """Ends the script with a message and an exit code."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def require(module, package):
    """Import a module, or fail with what to install."""
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as e:
        raise Failure(
            MISSING_PACKAGE,
            f"{module.split('.')[0]} is missing from {sys.executable} ({e}). "
            f"Install it where the script runs: apt-get install {package}, or pip install {module.split('.')[0]}",
        ) from None


def add_input(parser):
    """Add the options that say what to read."""
    parser.add_argument("file", nargs="?", metavar="INPUT", help="a CSV, TSV, JSON or JSON Lines file")
    parser.add_argument("--input", help="the same as INPUT")
    parser.add_argument("--input-format", choices=("csv", "tsv", "json", "jsonl"), help="default: by the file's ending")
    parser.add_argument("--filter", metavar="EXPRESSION", help="keep rows, for example \"age > 30 and city == 'Bonn'\"")


def load(args, parser):
    """Return the table that the options name, filtered."""
    if (args.file is None) == (args.input is None):
        parser.error("give one input file")
    path = args.file if args.input is None else args.input
    form = args.input_format or FORMATS.get(os.path.splitext(path)[1].lower())
    if form is None:
        raise Failure(USAGE_ERROR, f"{path}: unknown ending; say --input-format csv, tsv, json or jsonl")
    pandas = require("pandas", "python3-pandas")
    try:
        # utf-8-sig: a spreadsheet's export often begins with a byte order mark.
        with open(path, encoding="utf-8-sig", newline="") as stream:
            table = read(pandas, stream, form)
    except OSError as e:
        raise Failure(READ_ERROR, f"{path}: {e.strerror}") from None
    except UnicodeDecodeError as e:
        raise Failure(READ_ERROR, f"{path}: not UTF-8: {e.reason} at byte {e.start}") from None
    except Warning:
        raise Failure(READ_ERROR, f"{path}: not {form}: a row is longer than the header") from None
    except (ValueError, RecursionError) as e:  # also pandas' and json's own errors
        raise Failure(READ_ERROR, f"{path}: not {form}: {str(e).strip()}") from None
    table.columns = [str(c).strip() for c in table.columns]
    for i, column in enumerate(table.columns):
        if column in table.columns[:i]:
            raise Failure(READ_ERROR, f"{path}: two columns are named {column!r}")
    if args.filter is not None:
        table = filtered(table, args.filter)
    return table


def read(pandas, stream, form):
    if form in ("csv", "tsv"):
        with warnings.catch_warnings():
            # Without this check cells are lost: with index_col off, pandas only warns of a row longer than the header.
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            return pandas.read_csv(
                stream, sep="," if form == "csv" else "\t", index_col=False, skipinitialspace=True, low_memory=False
            )
    if form == "jsonl":
        rows = records([json.loads(line) for line in stream if line.strip()])
    else:
        rows = records(json.load(stream))
    table = pandas.json_normalize(rows)
    for name in table.columns[table.dtypes == object]:
        # A list cannot be counted or grouped, but its text can.
        table[name] = [json.dumps(v, ensure_ascii=False) if isinstance(v, (list, dict)) else v for v in table[name]]
    return table


def records(data):
    """Find the list of objects in a JSON document."""
    if isinstance(data, dict):
        lists = [v for v in data.values() if isinstance(v, list)]
        if lists and len(lists) == len(data) and not any(isinstance(x, dict) for v in lists for x in v):
            if len({len(v) for v in lists}) > 1:
                raise ValueError("the columns differ in length")
            return [dict(zip(data, row)) for row in zip(*lists)]
        tables = [v for v in lists if v and all(isinstance(x, dict) for x in v)]
        if len(tables) == 1:
            return tables[0]
    if isinstance(data, list) and all(isinstance(x, dict) for x in data):
        return data
    raise ValueError("neither a list of objects nor an object of lists")


def columns(table, names):
    """Split a comma-separated list of column names and check them."""
    names = [n.strip() for n in names.split(",")]
    for name in names:
        column(table, name)
    return names


def column(table, name):
    if name not in table.columns:
        raise Failure(USAGE_ERROR, f"no column {name!r}; there are: {', '.join(table.columns)}")
    return table[name]


def numeric(table):
    """Return the names of the columns that hold numbers; booleans don't count."""
    return list(table.select_dtypes(include="number").columns)


def filtered(table, source):
    """Return the rows for which a filter expression holds."""
    if len(source) > MAX_FILTER:
        raise Failure(USAGE_ERROR, f"filter: longer than {MAX_FILTER} characters")
    try:
        return table[Mask(table, source).value()]
    except (SyntaxError, RecursionError, MemoryError):
        raise Failure(USAGE_ERROR, f"filter: {source[:80]!r} is not a filter expression") from None


class Mask:
    """Turns a filter expression into a boolean column.

    Python's grammar is used, but only comparisons of columns and literals are
    accepted, and nothing is ever run as code.
    """

    COMPARE = {
        ast.Eq: lambda a, b: a == b,
        ast.NotEq: lambda a, b: a != b,
        ast.Lt: lambda a, b: a < b,
        ast.LtE: lambda a, b: a <= b,
        ast.Gt: lambda a, b: a > b,
        ast.GtE: lambda a, b: a >= b,
    }

    def __init__(self, table, source):
        self.table = table
        self.quoted = {}
        # Backticks aren't Python: each quoted column becomes a made-up name. Texts come first, so that
        # a backtick inside one stays.
        self.source = re.sub(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`([^`]+)`", self.rename, source).strip()

    def rename(self, match):
        if match.group(1) is None:
            return match.group(0)
        name = f"_quoted_{len(self.quoted)}"
        self.quoted[name] = match.group(1)
        return name

    def value(self):
        return self.test(ast.parse(self.source, mode="eval").body)

    def test(self, node):
        if isinstance(node, ast.BoolOp):
            masks = [self.test(v) for v in node.values]
            result = masks[0]
            for mask in masks[1:]:
                result = result & mask if isinstance(node.op, ast.And) else result | mask
            return result
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.test(node.operand)
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            masks = [self.compare(*pair) for pair in zip(operands, node.ops, operands[1:])]
            result = masks[0]
            for mask in masks[1:]:
                result = result & mask
            return result
        raise self.refused(node, "a comparison is expected")

    def compare(self, left, op, right):
        if isinstance(op, (ast.In, ast.NotIn)):
            if not isinstance(right, (ast.Tuple, ast.List, ast.Constant)):
                raise self.refused(right, "a list such as ('a', 'b') is expected")
            values = [self.literal(e) for e in getattr(right, "elts", [right])]
            mask = self.series(left).isin(values)
            return ~mask if isinstance(op, ast.NotIn) else mask
        if type(op) not in self.COMPARE:
            raise self.refused(left, "only ==, !=, <, <=, >, >= and in compare")
        a, b = self.operand(left), self.operand(right)
        if a is None or b is None:
            known = self.series(right if a is None else left)
            if isinstance(op, ast.Eq):
                return known.isna()
            if isinstance(op, ast.NotEq):
                return known.notna()
        try:
            mask = self.COMPARE[type(op)](a, b)
        except TypeError:
            raise self.refused(left, "a text is compared with a number") from None
        if not hasattr(mask, "index"):
            raise self.refused(left, "one side has to be a column")
        return mask.fillna(False).astype(bool)

    def operand(self, node):
        return self.series(node) if isinstance(node, ast.Name) else self.literal(node)

    def series(self, node):
        if not isinstance(node, ast.Name):
            raise self.refused(node, "a column is expected")
        return column(self.table, self.quoted.get(node.id, node.id))

    def literal(self, node):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.literal(node.operand)
            if isinstance(value, (int, float)):
                return -value
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str, bool, type(None))):
            return node.value
        raise self.refused(node, "a column, a number or a text in quotes is expected")

    def refused(self, node, reason):
        found = (ast.get_source_segment(self.source, node) or "")[:60]
        for name, original in self.quoted.items():
            found = found.replace(name, f"`{original}`")
        return Failure(USAGE_ERROR, f"filter: at {found!r}: {reason}")


def plain(value):
    """Return a value that JSON can hold: missing and infinite become None."""
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def write(path, text):
    """Write a whole file, or none."""
    part = f"{path}.part"
    try:
        with open(part, "w", encoding="utf-8", newline="") as out:
            out.write(text)
        os.replace(part, path)
    except OSError as e:
        if os.path.exists(part):
            os.unlink(part)
        raise Failure(READ_ERROR, f"{path}: {e.strerror}") from None


def run(name, main, argv):
    """Call main and turn what it raises into an exit code."""
    try:
        main(argv)
    except Failure as e:
        print(f"{name}: {e}", file=sys.stderr)
        return e.code
    return 0
