#!/usr/bin/env bash
# programs.sh DIRECTORY PACKAGE PROGRAM... copies programs of a Debian package into the
# directory. The package is not installed, because an installation starts its service.
# Libraries that the programs lack are installed.
set -euo pipefail

packages=$(cd "$(dirname "$0")" && pwd)/packages.sh
directory=$1 package=$2
shift 2
if ! command -v apt-get >/dev/null; then
	echo "this is not Debian: put $* of $package into $directory" >&2
	exit 1
fi
echo "==> programs of the package $package: $*"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The user _apt downloads, if apt-get runs as root.
chmod 755 "$work"
cd "$work"
if ! apt-get download -qq "$package" 2>/dev/null; then # the lists are old or missing
	run=()
	if ((EUID != 0)); then
		run=(sudo)
	fi
	"${run[@]}" apt-get update -qq
	apt-get download -qq "$package"
fi
dpkg-deb -x "$package"_*.deb .
mkdir -p "$directory"
for program in "$@"; do
	install -m 755 "$(find usr/bin usr/sbin -name "$program" 2>/dev/null)" "$directory/$program"
	if [[ $(ldd "$directory/$program" 2>&1) == *'not found'* ]]; then
		mapfile -t libraries < <(dpkg-deb -f "$package"_*.deb Depends | tr ',' '\n' | awk '$1 ~ /^lib/ {print $1}')
		bash "$packages" "${libraries[@]}"
	fi
done
