#!/usr/bin/env bash
# Count, search and clean plain text files; --help lists the commands.
#
# Exit codes: 0 done, 1 a file can't be read or written, 2 wrong use.
set -euo pipefail
export LC_ALL=C.UTF-8

die() {
	local code=$1
	shift
	printf 'text: %s\n' "$*" >&2
	exit "$code"
}

help() {
	cat <<'END'
usage: text.sh COMMAND [OPTION...] [FILE...]

commands:
  count FILE...         lines, words and characters
  words FILE...         the most frequent words
  find PATTERN FILE...  matching lines, and how many there are
  dedupe FILE...        the lines without repeats, in their order

options:
  --limit N             words: how many (10); find: how many lines (100)
  --ignore-case         find, dedupe: upper and lower case are the same
  --fixed               find: the pattern is a text, no regular expression
  --output FILE         write there instead of to standard output

Without a file, or with -, standard input is read.
END
}

count() {
	local file lines words characters
	printf '%10s %10s %12s  %s\n' lines words characters file
	for file in "${files[@]}"; do
		read -r lines words characters < <(cat -- "$file" | wc -lwm)
		printf '%10d %10d %12d  %s\n' "$lines" "$words" "$characters" "$(name "$file")"
	done | awk '{ print; for (i = 1; i < 4; i++) sum[i] += $i }
		END { if (NR > 1) printf "%10d %10d %12d  %s\n", sum[1], sum[2], sum[3], "all" }'
}

words() {
	# grep exits with 1 if a text has no words, which is not an error.
	{ cat -- "${files[@]}" | grep -aoE "[[:alpha:]][[:alnum:]]*(['’-][[:alnum:]]+)*" || [[ $? -eq 1 ]]; } |
		sed 's/.*/\L&/' | sort | uniq -c | sort -k1,1nr -k2,2 | awk -v n="${limit:-10}" 'NR <= n'
}

find() {
	local options=(-a -n) file
	[[ $fixed == yes ]] && options+=(-F) || options+=(-E)
	[[ $fold == no ]] || options+=(-i)
	# With empty input, grep exits with 2 only for an invalid pattern.
	grep "${options[@]}" -e "$pattern" </dev/null 2>/dev/null || [[ $? -eq 1 ]] ||
		die 2 "find: $pattern: not a regular expression"
	# A stream for awk: a line "F" and the file's name, then "M" and "number:line" for each match.
	for file in "${files[@]}"; do
		printf 'F%s\n' "$(name "$file")"
		{ grep "${options[@]}" -e "$pattern" -- "$file" || [[ $? -eq 1 ]]; } | sed 's/^/M/'
	done | awk -v limit="${limit:-100}" '
		/^F/ { file = substr($0, 2); next }
		matches++ < limit {
			colon = index($0, ":")
			print file ":" substr($0, 2, colon - 2) ": " substr($0, colon + 1)
			shown++
		}
		END { print matches + 0 " matching lines, " shown + 0 " shown" }'
}

dedupe() {
	# Some awks can only lower ASCII; GNU sed can lower UTF-8. A tab separates the key from the
	# line; tabs in the key have become blanks.
	if [[ $fold == yes ]]; then
		cat -- "${files[@]}" | sed 'h; s/\t/ /g; s/.*/\L&/; G; s/\n/\t/' |
			awk '{ at = index($0, "\t"); key = substr($0, 1, at - 1) } !seen[key]++ { print substr($0, at + 1) }'
	else
		cat -- "${files[@]}" | awk '!seen[$0]++'
	fi
}

name() {
	if [[ $1 == - ]]; then echo "(standard input)"; else echo "${1#./}"; fi
}

command=${1-}
case $command in
-h | --help)
	help
	exit 0
	;;
count | words | find | dedupe) shift ;;
"") die 2 "no command; count, words, find or dedupe, or --help" ;;
*) die 2 "$command: no such command; count, words, find or dedupe, or --help" ;;
esac

limit=
fold=no
fixed=no
output=
arguments=()
while [[ $# -gt 0 ]]; do
	case $1 in
	-h | --help)
		help
		exit 0
		;;
	--limit | --output)
		[[ $# -ge 2 ]] || die 2 "$1 needs a value"
		if [[ $1 == --limit ]]; then limit=$2; else output=$2; fi
		shift
		;;
	--ignore-case) fold=yes ;;
	--fixed) fixed=yes ;;
	--)
		shift
		arguments+=("$@")
		break
		;;
	-?*) die 2 "$1: no such option" ;;
	*) arguments+=("$1") ;;
	esac
	shift
done
[[ -z $limit || $limit =~ ^[0-9]{1,9}$ ]] || die 2 "--limit $limit: not a whole number"
if [[ $command == find ]]; then
	[[ ${#arguments[@]} -gt 0 && -n ${arguments[0]} ]] || die 2 "find: no pattern"
	pattern=${arguments[0]}
	arguments=("${arguments[@]:1}")
fi
[[ ${#arguments[@]} -gt 0 ]] || arguments=(-)

files=()
for file in "${arguments[@]}"; do
	if [[ $file == - ]]; then
		files+=(-)
		continue
	fi
	[[ -e $file ]] || die 1 "$file: no such file"
	[[ -f $file && -r $file ]] || die 1 "$file: not a file that can be read"
	[[ $file == /* ]] || file=./$file
	files+=("$file")
done

if [[ -z $output ]]; then
	"$command"
	exit
fi
# Renamed when complete, so that a failed run leaves no partial file, and so that the output
# may replace the input.
part=$output.part
trap 'rm -f -- "$part"' EXIT
: 2>/dev/null >"$part" || die 1 "$output: can't be written"
"$command" >"$part"
mv -- "$part" "$output"
echo "written to $output"
