"""Row filters such as: age > 30 and city in ('Berlin', 'Paris').

Used by process.py. An expression is parsed into closures; nothing in it is ever run as code.

    or      = and { "or" and }
    and     = not { "and" not }
    not     = "not" not | "(" or ")" | test
    test    = operand ( compare operand | ["not"] "in" "(" literal { "," literal } ")" )
    operand = column | literal
"""

import operator
import re

MAX_LENGTH = 10_000  # characters of an expression
MAX_DEPTH = 100  # of parentheses and "not"

TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])
    | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<quoted>`[^`]+`)
    | (?P<word>[^\W\d]\w*)
    | (?P<sign><=|>=|==|!=|<>|[<>=(),])
    )""",
    re.VERBOSE,
)

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

COMPARE = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TEXT_TESTS = {
    "contains": lambda cell, text: text in cell,
    "startswith": str.startswith,
    "endswith": str.endswith,
}
KEYWORDS = {"and", "or", "not", "in", *TEXT_TESTS}


class ExpressionError(Exception):
    """The filter can't be understood; the message says where and why."""


def number(cell):
    """Return the cell as a number, or None if it isn't one."""
    cell = cell.strip()
    return float(cell) if NUMBER.fullmatch(cell) else None


class Filter:
    """A parsed expression over rows with the given columns.

    Call it with a row, a list of cells in the columns' order. not_numbers
    counts, by column, the cells that were to be compared with a number and
    are neither empty nor a number.
    """

    def __init__(self, source, columns):
        if len(source) > MAX_LENGTH:
            raise ExpressionError(f"longer than {MAX_LENGTH} characters")
        self.columns = {name: i for i, name in enumerate(columns)}
        self.not_numbers = {}
        self.tokens = list(tokens(source))
        self.next = 0
        self.depth = 0
        self.test = self.either()
        if self.peek()[0] != "end":
            raise self.unexpected("'and', 'or' or the end")

    def __call__(self, row):
        return self.test(row)

    # The grammar, with one method for each rule. Each returns a function of a row.

    def either(self):
        tests = [self.both()]
        while self.take("word", "or"):
            tests.append(self.both())
        return tests[0] if len(tests) == 1 else lambda row: any(t(row) for t in tests)

    def both(self):
        tests = [self.negation()]
        while self.take("word", "and"):
            tests.append(self.negation())
        return tests[0] if len(tests) == 1 else lambda row: all(t(row) for t in tests)

    def negation(self):
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"nested more than {MAX_DEPTH} deep")
        try:
            if self.take("word", "not"):
                test = self.negation()
                return lambda row: not test(row)
            if self.take("sign", "("):
                test = self.either()
                self.expect(")")
                return test
            return self.comparison()
        finally:
            self.depth -= 1

    def comparison(self):
        left = self.operand()
        kind, text, _ = self.peek()
        if kind == "sign" and text in COMPARE:
            self.next += 1
            return self.compare(left, COMPARE[text], self.operand())
        if kind == "word" and text.lower() in TEXT_TESTS:
            self.next += 1
            test, right = TEXT_TESTS[text.lower()], self.operand()
            return lambda row: test(as_text(left, row), as_text(right, row))
        negated = self.take("word", "not")
        if self.take("word", "in"):
            test = self.membership(left)
            return (lambda row: not test(row)) if negated else test
        raise self.unexpected("a comparison such as =, <, in or contains")

    def membership(self, left):
        self.expect("(")
        tests = [self.compare(left, operator.eq, self.literal())]
        while self.take("sign", ","):
            tests.append(self.compare(left, operator.eq, self.literal()))
        self.expect(")")
        return lambda row: any(t(row) for t in tests)

    def operand(self):
        kind, text, _ = self.peek()
        if kind == "quoted":
            self.next += 1
            return self.column(text[1:-1])
        if kind == "word" and text.lower() not in KEYWORDS:
            self.next += 1
            return self.column(text)
        return self.literal()

    def literal(self):
        kind, text, _ = self.peek()
        if kind == "number":
            self.next += 1
            return "number", float(text), text
        if kind == "text":
            self.next += 1
            return "text", text[1:-1].replace(text[0] * 2, text[0]), text
        raise self.unexpected("a column, a number or a text in quotes")

    def column(self, name):
        if name not in self.columns:
            raise ExpressionError(f"no column {name!r}; there are: {', '.join(self.columns)}")
        return "column", self.columns[name], name

    def compare(self, left, test, right):
        """Compare as numbers if either side is a number, or if both cells are."""
        kinds = {left[0], right[0]}
        if "number" in kinds and "text" not in kinds:

            def as_numbers(row):
                a, b = self.as_number(left, row), self.as_number(right, row)
                return a is not None and b is not None and test(a, b)

            return as_numbers
        if kinds == {"column"}:

            def as_either(row):
                a, b = row[left[1]], row[right[1]]
                x, y = number(a), number(b)
                return test(a, b) if x is None or y is None else test(x, y)

            return as_either
        return lambda row: test(as_text(left, row), as_text(right, row))

    def as_number(self, operand, row):
        kind, value, name = operand
        if kind == "number":
            return value
        cell = row[value]
        found = number(cell)
        if found is None and cell.strip():
            self.not_numbers[name] = self.not_numbers.get(name, 0) + 1
        return found

    # The tokens: (kind, text, offset), the last one of kind "end".

    def peek(self):
        return self.tokens[self.next]

    def take(self, kind, text):
        found, value, _ = self.peek()
        if found != kind or value.lower() != text:
            return False
        self.next += 1
        return True

    def expect(self, sign):
        if not self.take("sign", sign):
            raise self.unexpected(f"'{sign}'")

    def unexpected(self, wanted):
        kind, text, offset = self.peek()
        found = "the expression ends" if kind == "end" else f"{text!r} is found"
        return ExpressionError(f"column {offset + 1}: {wanted} is expected, {found}")


def as_text(operand, row):
    kind, value, source = operand
    if kind == "column":
        return row[value]
    return source if kind == "number" else value


def tokens(source):
    offset, end = 0, len(source.rstrip())
    while offset < end:
        match = TOKEN.match(source, offset)
        if not match:
            start = len(source) - len(source[offset:].lstrip())
            raise ExpressionError(f"column {start + 1}: {source[start:start + 10]!r} is not understood")
        kind = match.lastgroup
        yield kind, match.group(kind), match.start(kind)
        offset = match.end()
    yield "end", "", end
