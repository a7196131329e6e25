#!/usr/bin/env bash
# Starts a daemon in a temporary directory, runs a shipped skill through the
# client, and removes everything again. SKILLRUN_BIN is the directory of the
# binaries (default bin/).
set -euo pipefail
cd "$(dirname "$0")/.."

if ((EUID != 0)); then
	echo "the daemon makes sandboxes as root: run sudo make demo" >&2
	exit 1
fi
bin=${SKILLRUN_BIN:-$PWD/bin}
dir=$(mktemp -d /var/tmp/skillrun-demo.XXXXXX)
chmod 0711 "$dir"
cat >"$dir/skillrund.yaml" <<YAML
state_dir: $dir/state
run_dir: $dir/run
skills: [$PWD/skills]
listen:
  unix: $dir/skillrun.sock
YAML
"$bin/skillrund" --config "$dir/skillrund.yaml" >"$dir/log" 2>&1 &
daemon=$!
cleanup() {
	kill -TERM "$daemon" 2>/dev/null || true
	wait "$daemon" 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT

for _ in $(seq 600); do # the first start unpacks a Python
	[[ -S $dir/skillrun.sock ]] && break
	if ! kill -0 "$daemon" 2>/dev/null; then
		cat "$dir/log" >&2
		exit 1
	fi
	sleep 0.1
done
export SKILLRUN_ADDRESS=unix://$dir/skillrun.sock

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
