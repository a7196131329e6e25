#!/usr/bin/env bash
# Tries the skills in folders, which may hold them at any level: how many load, which of their command
# lines are allowed, and which scripts run. It fetches nothing. The flags before the folders are those
# of skillrun survey. The skills of NAME=DIR get the namespace NAME, so several folders may have a skill
# of the same name.
#
# usage: survey.sh [FLAG...] [--] [NAME=]DIR...
set -euo pipefail
flags=()
while [[ ${1-} == -* ]]; do
	if [[ $1 == -- ]]; then
		shift
		break
	fi
	flags+=("$1")
	shift
done
if (($# == 0)); then
	echo "survey: name the folders with skills: make survey SKILLS='DIR ...'" >&2
	exit 1
fi
roots=
for root; do
	namespace=
	if [[ $root =~ ^([a-z0-9-]+)=(.*) ]]; then
		namespace=", namespace: \"${BASH_REMATCH[1]}\"" root=${BASH_REMATCH[2]}
	fi
	# JSON strings are strings of YAML.
	roots+="- {path: \"$(realpath -e -- "$root" | sed 's/[\\"]/\\&/g')\", recursive: true$namespace}"$'\n'
done
cd "$(dirname "$0")/.."
. deploy/daemon.sh
start_daemon "log: {format: json}
skills:
$roots"
# The daemon writes to its log while survey runs.
cp "$dir/log" "$dir/loading"
"$bin/skillrun" survey --log "$dir/loading" ${flags[@]+"${flags[@]}"}
