#!/usr/bin/env bash
# The inner loop: everything that needs neither root nor a daemon. A test that needs root
# skips and says why; as root the same tests run. Results come from Go's test cache where
# nothing has changed. Most tests of the packages in $deep make sandboxes, or start daemons or fork
# servers: with -short these tests are skipped and say so.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "==> format and vet"
unformatted=$(git ls-files -z '*.go' | grep -zv '\.pb\.go$' | xargs -0r gofmt -l)
test -z "$unformatted" || { echo "not formatted: $unformatted"; exit 1; }
go vet ./...

base=$(git merge-base HEAD refs/remotes/origin/main 2>/dev/null || git rev-parse HEAD)
mapfile -t changed < <({ git diff --name-only --diff-filter=d "$base" -- '*.go'; git ls-files -o --exclude-standard '*.go'; } | xargs -r dirname | sort -u)
if ((${#changed[@]})); then
	echo "==> staticcheck of what changed since ${base:0:9}: ${changed[*]}"
	.tools/staticcheck "${changed[@]/#/./}"
fi

echo "==> tests"
deep=(sandbox sandbox/internal/pyzygote cmd/skillrund)
go list ./... | grep -vxF "$(printf 'github.com/skillrun/skillrun/%s\n' "${deep[@]}")" | xargs go test
go test -short -skip '^Example$' "${deep[@]/#/./}" # an example can't skip itself
