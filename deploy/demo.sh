#!/usr/bin/env bash
# Starts a daemon in a temporary directory, runs a shipped skill through the
# client, and removes everything again. SKILLRUN_BIN is the directory of the
# binaries (default bin/).
set -euo pipefail
cd "$(dirname "$0")/.."

. deploy/daemon.sh
start_daemon "skills: [$PWD/skills]"

show() { printf '\n$ %s\n' "$*"; "$@"; }
PATH=$bin:$PATH
show skillrun skills
show skillrun run calculator scripts/calc.py '2 + 2 * 20'
show skillrun run calculator -c 'import time
for i in range(5):
    print("live output", i + 1, "of 5")
    time.sleep(0.3)'
printf 'name,age\nAda,36\nLinus,12\nGrace,45\n' >"$dir/people.csv"
show skillrun run csv-processor --file "$dir/people.csv:people.csv" --artifacts "$dir/out" scripts/process.py people.csv --filter 'age > 30' --output adults.csv
show cat "$dir/out/adults.csv"
printf '\n$ skillrun run calculator -c '\''open("/usr/bin/x", "w")'\''   # the sandbox says no\n'
skillrun run calculator -c 'open("/usr/bin/x", "w")' || echo "exit code $?"
