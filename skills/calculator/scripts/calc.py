#!/usr/bin/env python3
"""Evaluate arithmetic expressions exactly, without running code.

Expressions come as arguments. Without arguments, the script reads a JSON object from
standard input. Exit codes: 0 done, 1 the expression has no value, 2 the
expression or an option is not understood.
"""

import argparse
import ast
import json
import math
import operator
import re
import sys
from fractions import Fraction

MAX_LENGTH = 10_000  # characters of one expression
MAX_DEPTH = 2_000  # nested operations; a sum of n numbers is n deep
FRAMES = 4 * MAX_DEPTH  # the evaluator needs two for each level
MAX_BITS = 50_000  # of a numerator or denominator: about 15,000 decimal digits
MAX_ARGUMENT = 2_000  # of factorial, comb and perm
MAX_PLACES = 1_000  # of round
EXACT_PLACES = 30  # a result with more decimal places is printed rounded
SIGNIFICANT_DIGITS = 15  # what a double holds


class NotUnderstood(Exception):
    """The expression is not arithmetic that this calculator knows."""


class NoValue(Exception):
    """The expression is understood, but it has no value."""


def bounded(value):
    """Return value as a Fraction or a float; NoValue if it is too large."""
    if isinstance(value, int):
        value = Fraction(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NoValue("the result is too large")
    elif max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise NoValue("the result is too large")
    return value


def whole(value, name):
    if value != int(value):
        raise NoValue(f"{name} needs whole numbers")
    return int(value)


def small(value, name):
    n = whole(value, name)
    if not 0 <= n <= MAX_ARGUMENT:
        raise NoValue(f"{name} needs whole numbers from 0 to {MAX_ARGUMENT}")
    return n


def power(base, exponent):
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        # Check the size first: 9 ** 9 ** 9 must not be computed.
        bits = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
        if abs(exponent) * bits > MAX_BITS:
            raise NoValue("the result is too large")
        return base ** int(exponent)
    if base < 0 and exponent != int(exponent):
        raise NoValue("fractional power of a negative number")
    return float(base) ** float(exponent)


def square_root(value):
    """Return the square root, exact where the number is a square."""
    if value < 0:
        raise NoValue("square root of a negative number")
    if isinstance(value, Fraction):
        over, under = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if over * over == value.numerator and under * under == value.denominator:
            return Fraction(over, under)
    return math.sqrt(value)


def round_half_up(value, places=0):
    """Round ties away from zero, as people do and Python's round does not."""
    places = whole(places, "round")
    if abs(places) > MAX_PLACES:
        raise NoValue(f"round to more than {MAX_PLACES} places")
    scale = Fraction(10) ** places
    digits = math.floor(abs(Fraction(value)) * scale + Fraction(1, 2))
    return (digits if value >= 0 else -digits) / scale


OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: power,
}

FUNCTIONS = {
    "abs": abs,
    "ceil": math.ceil,
    "comb": lambda n, k: math.comb(small(n, "comb"), small(k, "comb")),
    "factorial": lambda n: math.factorial(small(n, "factorial")),
    "floor": math.floor,
    "gcd": lambda *values: math.gcd(*(whole(v, "gcd") for v in values)),
    "lcm": lambda *values: math.lcm(*(whole(v, "lcm") for v in values)),
    "max": lambda first, *rest: max((first, *rest)),
    "min": lambda first, *rest: min((first, *rest)),
    "perm": lambda n, k: math.perm(small(n, "perm"), small(k, "perm")),
    "round": round_half_up,
    "sqrt": square_root,
    "sum": lambda *values: sum(values),
}
FUNCTIONS.update(
    (name, getattr(math, name))
    for name in (
        "acos", "asin", "atan", "atan2", "cos", "degrees", "exp", "hypot",
        "log", "log10", "log2", "radians", "sin", "tan",
    )
)  # fmt: skip

CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}


class Evaluator:
    """Evaluates one expression; names are looked up in variables first."""

    def __init__(self, source, variables):
        self.source = source
        self.names = {**CONSTANTS, **variables}

    def value(self):
        if len(self.source) > MAX_LENGTH:
            raise NotUnderstood(f"longer than {MAX_LENGTH} characters")
        try:
            tree = ast.parse(self.source, mode="eval")
        except SyntaxError as e:
            where = f" at column {e.offset}" if e.offset else ""
            raise NotUnderstood(f"not an expression{where}") from None
        except (ValueError, RecursionError, MemoryError):
            raise NotUnderstood("not an expression") from None
        return self.visit(tree.body, 0)

    def visit(self, node, depth):
        if depth > MAX_DEPTH:
            raise NotUnderstood(f"nested more than {MAX_DEPTH} deep")
        try:
            return bounded(self.apply(node, depth + 1))
        except ZeroDivisionError:
            raise NoValue("division by zero") from None
        except OverflowError:
            raise NoValue("the result is too large") from None
        except ValueError:
            raise NoValue(f"{self.text(node)} is not defined") from None

    def text(self, node):
        return ast.get_source_segment(self.source, node)[:60]

    def apply(self, node, depth):
        if isinstance(node, ast.Constant):
            return self.number(node)
        if isinstance(node, ast.Name):
            if node.id not in self.names:
                raise NotUnderstood(f"unknown name {node.id!r}")
            return self.names[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            operand = self.visit(node.operand, depth)
            return -operand if isinstance(node.op, ast.USub) else operand
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.BitXor):
                raise NotUnderstood("^ is not a power here; write **")
            if type(node.op) in OPERATORS:
                left, right = self.visit(node.left, depth), self.visit(node.right, depth)
                return OPERATORS[type(node.op)](left, right)
        if isinstance(node, ast.Call):
            return self.call(node, depth)
        raise NotUnderstood(f"{self.text(node)!r} is not arithmetic")

    def number(self, node):
        # The digits as written: 0.1 is one tenth, not the nearest double.
        text = self.text(node)
        if type(node.value) not in (int, float):
            raise NotUnderstood(f"{text} is not a number")
        if isinstance(node.value, int):
            return Fraction(node.value)
        if not math.isfinite(node.value):
            raise NoValue(f"{text} is too large")
        return Fraction(ast.get_source_segment(self.source, node).replace("_", ""))

    def call(self, node, depth):
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise NotUnderstood(f"{self.text(node)!r} is not arithmetic")
        name = node.func.id
        if name not in FUNCTIONS:
            raise NotUnderstood(f"unknown function {name!r}")
        arguments = [self.visit(a, depth) for a in node.args]
        try:
            return FUNCTIONS[name](*arguments)
        except TypeError:
            raise NotUnderstood(f"{name} does not take {len(arguments)} arguments") from None


def show(value):
    """Print a number as a person would write it."""
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return str(value.numerator)
        decimal = terminating(value)
        if decimal is not None:
            return decimal
        try:
            value = float(value)
        except OverflowError:
            raise NoValue("the result is too large to print as a decimal") from None
    text = f"{value:.{SIGNIFICANT_DIGITS}g}"
    return "0" if text == "-0" else text


def terminating(value):
    """Return the exact decimal of a fraction, or None if it has too many places."""
    for places in range(1, EXACT_PLACES + 1):
        scaled = value * 10**places
        if scaled.denominator == 1:
            sign = "-" if scaled < 0 else ""
            digits = str(abs(scaled.numerator)).rjust(places + 1, "0")
            return f"{sign}{digits[:-places]}.{digits[-places:]}"
    return None


def variable(name, value):
    """Check one variable; a value is a number or a text that holds one."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise NotUnderstood(f"{name!r} is not a variable name")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise NotUnderstood(f"variable {name}: {value!r} is not a number")
    try:
        number = Evaluator(str(value).strip(), {}).value()
    except NotUnderstood as e:
        raise NotUnderstood(f"variable {name}: {e}") from None
    return name, number


def from_json(text):
    """Return (expressions, variables) of a JSON request."""
    try:
        request = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise NotUnderstood(f"standard input is not JSON: {e}") from None
    if not isinstance(request, dict):
        raise NotUnderstood("standard input is not a JSON object")
    unknown = set(request) - {"expression", "expressions", "variables"}
    if unknown:
        raise NotUnderstood(f"unknown key {sorted(unknown)[0]!r}; known: expression, expressions, variables")
    expressions = request.get("expressions", [])
    if "expression" in request:
        expressions = [request["expression"]]
    if not isinstance(expressions, list) or not expressions or not all(isinstance(x, str) for x in expressions):
        raise NotUnderstood('standard input needs "expression": a text, or "expressions": a list of texts')
    variables = request.get("variables", {})
    if not isinstance(variables, dict):
        raise NotUnderstood('"variables" is not an object')
    return expressions, variables


def arguments(argv):
    parser = argparse.ArgumentParser(
        description="Evaluate arithmetic expressions exactly, without running code.",
        epilog='Without an expression, reads {"expression": "...", "variables": {...}} from standard input.',
    )
    parser.add_argument("expression", nargs="*", help="for example '2 * (3 + 4)'; quote it")
    parser.add_argument("--var", action="append", default=[], metavar="NAME=VALUE", help="a variable; may be repeated")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of the output (default: text)")
    # argparse takes -2+3 as an option, but not with a blank before it.
    return parser.parse_args([" " + a if re.match(r"-[\d.(]", a) else a for a in argv])


def run(argv):
    args = arguments(argv)
    given = {}
    for pair in args.var:
        name, equals, value = pair.partition("=")
        if not equals:
            raise NotUnderstood(f"--var {pair}: needs NAME=VALUE")
        given[name.strip()] = value
    expressions = [x.strip() for x in args.expression]
    if not expressions:
        expressions, variables = from_json(sys.stdin.read())
        given = {**variables, **given}
    variables = dict(variable(name, value) for name, value in given.items())
    results = []
    for expression in expressions:
        expression = expression.strip()
        try:
            results.append((expression, show(Evaluator(expression, variables).value())))
        except (NotUnderstood, NoValue) as e:
            raise type(e)(f"{expression[:80]}: {e}") from None
    for expression, result in results:
        if args.format == "json":
            # A text, because many JSON readers round long numbers.
            print(json.dumps({"expression": expression, "result": result}, ensure_ascii=False))
        else:
            print(result)


def main(argv):
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # MAX_LENGTH and MAX_BITS are the bounds
    sys.setrecursionlimit(FRAMES)
    try:
        run(argv)
    except NoValue as e:
        print(f"calc: {e}", file=sys.stderr)
        return 1
    except NotUnderstood as e:
        print(f"calc: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
