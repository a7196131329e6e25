#!/usr/bin/env python3
"""Writes the fields of a form as JSON."""
import json
import sys

from form import fields

if len(sys.argv) != 3:
    sys.exit("usage: extract_fields.py INPUT OUTPUT")
found = fields(sys.argv[1])
with open(sys.argv[2], "w", encoding="utf-8") as out:
    json.dump(found, out, indent=2, ensure_ascii=False)
print(f"Found {len(found)} fields, saved to {sys.argv[2]}")
