#!/usr/bin/env bash
# Runs every fuzz test of the repository for a while: FUZZTIME each, 1m by default.
# What one finds, go test keeps beneath the package's testdata/fuzz: commit it with
# the repair.
set -euo pipefail
cd "$(dirname "$0")/.."

each=${FUZZTIME:-1m}
found=0
while IFS=: read -r file function; do
	echo "==> fuzz $(dirname "$file") $function, $each"
	go test -run '^$' -fuzz "^$function\$" -fuzztime "$each" -fuzzminimizetime 5s -timeout 24h "./$(dirname "$file")"
	found=$((found + 1))
done < <(git grep -E '^func Fuzz[A-Za-z]+\(f \*testing\.F\)' -- '*_test.go' | sed -E 's/^([^:]+):func (Fuzz[A-Za-z]+)\(.*/\1:\2/')
if ((found == 0)); then
	echo "no fuzz test was found" >&2
	exit 1
fi
echo "==> $found fuzz tests"
