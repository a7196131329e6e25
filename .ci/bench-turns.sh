#!/usr/bin/env bash
# Compares this tree with the commit BASE: builds both, runs the benchmark of each in turns, ROUNDS
# times, and prints the medians of the rows that both have. Each side is measured by its own client
# and its own benchmark, because the contract and the benchmark can differ between the two commits.
#
# usage: .ci/bench-turns.sh BASE ROUNDS [flag of skillrun bench]...
set -euo pipefail
cd "$(dirname "$0")/.."
base=$1 rounds=$2
shift 2

dir=$(mktemp -d "${TMPDIR:-/tmp}/skillrun-turns.XXXXXX")
trap 'git worktree remove --force "$dir/base" 2>/dev/null || true; rm -rf "$dir"' EXIT
git worktree add --quiet --detach "$dir/base" "$base"
# The tools of this tree serve both: no download, and the same runc.
ln -s "$PWD/.tools" "$dir/base/.tools"
make -C "$dir/base" build >&2

for ((i = 1; i <= rounds; i++)); do
	# The side that runs first changes, so that neither always finds the machine as the other left it.
	sides=(base here)
	((i % 2)) || sides=(here base)
	for side in "${sides[@]}"; do
		echo "==> round $i of $rounds: $side" >&2
		tree=.
		[[ $side == here ]] || tree=$dir/base
		code=0
		"$tree/bin/skillrun" bench --json --runc .tools/runc "$@" >"$dir/$side-$i.json" || code=$?
		# 1: some rows could not be measured, and the others count.
		((code <= 1)) || { echo "skillrun bench of $side: exit code $code" >&2; exit 1; }
	done
done
.ci/bench-turns.py "$dir"
