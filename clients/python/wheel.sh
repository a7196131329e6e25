#!/usr/bin/env bash
# Builds the wheel of the Python client into a directory, with Debian's setuptools and without a network.
# The same sources give the same bytes: files in the archive have the time of the last commit, or
# SOURCE_DATE_EPOCH.
set -euo pipefail
out=${1:?usage: clients/python/wheel.sh DIRECTORY}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")"

epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1577836800)}
# In a copy, because setuptools writes into the directory of the sources. Modes and compiled files of this machine
# must not get into the archive.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r pyproject.toml README.md skillrun "$copy/"
find "$copy" -name __pycache__ -prune -exec rm -r {} +
chmod -R u=rwX,go=rX "$copy"
cd "$copy"
umask 022
SOURCE_DATE_EPOCH=$epoch TZ=UTC PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -c '
import sys
from setuptools import build_meta
print(build_meta.build_wheel(sys.argv[1]))' "$out" >"$copy/log" 2>&1 || {
	cat "$copy/log" >&2
	exit 1
}
tail -1 "$copy/log"
