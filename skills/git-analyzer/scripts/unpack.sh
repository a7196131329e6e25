#!/usr/bin/env bash
# Unpack a git bundle into a bare repository that git commands can read.
#
# usage: unpack.sh BUNDLE [DIRECTORY]
#
# DIRECTORY must not exist; the default is /tmp/repo, which is no part of the
# workspace, so that the repository's files don't count as results.
# Exit codes: 0 done, 1 not a complete bundle, 2 wrong use.
set -euo pipefail

# The machine's and the user's git configuration is ignored.
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0

die() {
	local code=$1
	shift
	printf 'unpack: %s\n' "$*" >&2
	exit "$code"
}

case "${1-}" in
-h | --help)
	echo "usage: unpack.sh BUNDLE [DIRECTORY]"
	echo "Unpack a git bundle into a bare repository (default: /tmp/repo)."
	exit 0
	;;
esac
[[ $# -eq 1 || $# -eq 2 ]] || die 2 "usage: unpack.sh BUNDLE [DIRECTORY]"
bundle=$1
directory=${2-/tmp/repo}

command -v git >/dev/null || die 1 "git is not installed"
[[ -f $bundle ]] || die 1 "$bundle: no such file"
# git clone also accepts URLs, so only a file with the signature of a bundle is passed to it.
IFS= read -r signature <"$bundle" 2>/dev/null || signature=
[[ $signature == "# v"[23]" git bundle" ]] || die 1 "$bundle: not a git bundle; make one with: git bundle create FILE --all"
[[ ! -e $directory ]] || die 2 "$directory: exists already"
[[ $bundle == /* ]] || bundle=$PWD/$bundle

if ! message=$(git clone --quiet --bare --template= -- "$bundle" "$directory" 2>&1); then
	rm -rf -- "$directory"
	die 1 "$1: ${message:-git could not read it}"
fi
if ! git -C "$directory" rev-parse --quiet --verify HEAD >/dev/null; then
	# After a bundle of branches without HEAD, HEAD names a branch that does not exist.
	branch=$(git -C "$directory" for-each-ref --count=1 --sort=-committerdate --format='%(refname)' refs/heads)
	[[ -n $branch ]] || branch=$(git -C "$directory" for-each-ref --count=1 --format='%(refname)')
	[[ -n $branch ]] || die 1 "$1: the bundle has no commits"
	git -C "$directory" symbolic-ref HEAD "$branch" 2>/dev/null ||
		git -C "$directory" update-ref --no-deref HEAD "$branch^{commit}"
fi
