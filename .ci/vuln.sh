#!/usr/bin/env bash
# Asks the Go vulnerability database about the functions that our code calls. A finding
# fails. If the database cannot be reached, the script says so and passes.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if govulncheck ./... >"$log" 2>&1; then
	tail -n 3 "$log"
	exit 0
fi
if grep -q '^govulncheck: fetching vulnerabilities' "$log"; then
	tail -n 1 "$log"
	echo "vuln: NOTHING WAS CHECKED: the vulnerability database can't be reached from here" >&2
	exit 0
fi
cat "$log" >&2
exit 1
