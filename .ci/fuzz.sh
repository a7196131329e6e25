#!/usr/bin/env bash
# Runs every fuzz test of the repository for a while: FUZZTIME each, a time such as
# 1m or a number of inputs such as 1000x. What one finds, go test keeps beneath the
# package's testdata/fuzz: commit it with the repair.
set -euo pipefail
cd "$(dirname "$0")/.."

each=${FUZZTIME:-1m}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
found=0
while IFS=: read -r file function; do
	echo "==> fuzz $(dirname "$file") $function, $each"
	if ! go test -run '^$' -fuzz "^$function\$" -fuzztime "$each" -fuzzminimizetime 5s -timeout 24h "./$(dirname "$file")" >"$log" 2>&1; then
		# go test may call the end of the time itself a failure, golang/go#75804.
		if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; then
			echo "the time was up while an input was tried"
		else
			cat "$log" >&2
			exit 1
		fi
	fi
	tail -n 1 "$log"
	found=$((found + 1))
done < <(git grep -E '^func Fuzz[A-Za-z]+\(f \*testing\.F\)' -- '*_test.go' | sed -E 's/^([^:]+):func (Fuzz[A-Za-z]+)\(.*/\1:\2/')
if ((found == 0)); then
	echo "no fuzz test was found" >&2
	exit 1
fi
echo "==> $found fuzz tests"
