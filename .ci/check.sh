#!/usr/bin/env bash
# The inner loop: the tests that a normal user can run in about a minute of two processors, with a
# warm cache of Go. With -short, tests that make sandboxes, build environments, or start daemons or fork servers are
# skipped and say so; the others that need root say so, too. Test results come from Go's cache where
# nothing has changed.
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
# The embedded Python, for the tests that run it, is built and unpacked once for all packages and
# clones. It is not in .cache, which belongs to root after make test.
python=${XDG_CACHE_HOME:-$HOME/.cache}/skillrun-check
go build -o "$python/bin/" ./cmd/skillrun-python
# go vet ran above; test binaries need no symbol tables. An example can't skip itself.
SKILLRUN_BIN=$python/bin SKILLRUN_TEST_PYTHON=$python/unpacked go test -short -vet=off -ldflags='-s -w' -skip '^Example$' ./...
