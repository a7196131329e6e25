#!/usr/bin/env bash
# Summarise a repository: commits, period, authors, most changed files, latest commits.
#
# usage: summary.sh [--since DATE] [--limit N] [BUNDLE | DIRECTORY]
#
# Without an argument, the repository of the working directory is read.
# Exit codes: 0 done, 1 no repository or no complete bundle, 2 wrong use.
set -euo pipefail

export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_PAGER=cat

die() {
	local code=$1
	shift
	printf 'summary: %s\n' "$*" >&2
	exit "$code"
}

usage="usage: summary.sh [--since DATE] [--limit N] [BUNDLE | DIRECTORY]"
since=
limit=10
source=
while [[ $# -gt 0 ]]; do
	case $1 in
	-h | --help)
		echo "$usage"
		echo "Summarise a repository: commits, period, authors, most changed files, latest commits."
		exit 0
		;;
	--since | --limit)
		[[ $# -ge 2 ]] || die 2 "$1 needs a value"
		if [[ $1 == --since ]]; then since=$2; else limit=$2; fi
		shift
		;;
	-*) die 2 "unknown option $1; $usage" ;;
	*)
		[[ -z $source ]] || die 2 "$usage"
		source=$1
		;;
	esac
	shift
done
[[ $limit =~ ^[1-9][0-9]{0,3}$ ]] || die 2 "--limit $limit: needs a number from 1 to 9999"

repository=${source:-.}
if [[ -f $repository ]]; then
	scratch=$(mktemp -d)
	trap 'rm -rf -- "$scratch"' EXIT
	bash "${BASH_SOURCE[0]%/*}/unpack.sh" "$repository" "$scratch/repo" || exit $?
	repository=$scratch/repo
fi
git -C "$repository" rev-parse --git-dir >/dev/null 2>&1 || die 1 "$repository: no git repository"
git -C "$repository" rev-parse --quiet --verify HEAD >/dev/null || die 1 "$repository: no commits"

range=(HEAD)
[[ -z $since ]] || range=(--since="$since" HEAD)

history() { git -C "$repository" log "$@" "${range[@]}"; }

count=$(history --format=%H | wc -l)
echo "commits: $count"
[[ $count -gt 0 ]] || exit 0
history --format=%as | sort | awk 'NR == 1 { first = $0 } { last = $0 } END { print "period:  " first " to " last }'
echo
echo "authors:"
# Counted here, because git shortlog reads standard input if there are no commits.
history --no-merges --format='%an' | sort | uniq -c | sort -k1,1nr -k2 | awk -v n="$limit" 'NR <= n'
echo
echo "most changed files:"
# core.quotePath=false prints names unquoted. Merges are skipped: their changes belong to other commits.
git -C "$repository" -c core.quotePath=false log --no-merges --name-only --format= "${range[@]}" |
	sort | uniq -c | sort -k1,1nr -k2 | awk -v n="$limit" 'NR <= n'
echo
echo "latest commits:"
history --max-count="$limit" --format='%h %as %an: %s'
