#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.9"
# dependencies = []
# ///
import sys

for text in sys.argv[1:]:
    print(len(set(text.lower())), text)
