"""Adds its arguments."""
import sys

print(sum(map(float, sys.argv[1:])))
