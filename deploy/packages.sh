#!/usr/bin/env bash
# Installs the Debian packages that are missing. An argument COMMAND:PACKAGE asks
# for a package only if the command is not there, from wherever it came.
set -euo pipefail

missing=()
for wanted in "$@"; do
	package=${wanted#*:}
	if [[ $wanted == *:* ]] && [[ -x /usr/bin/${wanted%%:*} || -x /usr/local/bin/${wanted%%:*} ]]; then
		continue
	fi
	status=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)
	[[ $status == ii* ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

echo "==> packages ${missing[*]}"
if ! command -v apt-get >/dev/null; then
	echo "this is not Debian: install the equivalents of: ${missing[*]}" >&2
	exit 1
fi
run=()
if ((EUID != 0)); then
	run=(sudo)
fi
"${run[@]}" apt-get update -qq
"${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
