#!/usr/bin/env python3
"""Fills a form. Exit code 3: a value does not fit the form."""
import argparse
import json
import sys

from form import fields, fill

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("input")
parser.add_argument("values", help="JSON: an object of names and texts, or - for standard input")
parser.add_argument("output")
args = parser.parse_args()

values = json.load(sys.stdin if args.values == "-" else open(args.values, encoding="utf-8"))
known = {f["name"]: f for f in fields(args.input)}
for name, value in values.items():
    if name not in known:
        print(f"ERROR: no field {name!r}; the fields are {', '.join(known)}", file=sys.stderr)
        sys.exit(3)
    if len(value) > int(known[name].get("max", len(value))):
        print(f"ERROR: {name}: {value!r} is too long", file=sys.stderr)
        sys.exit(3)
fill(args.input, values, args.output)
