# Prints the coverage of the packages that must be covered and fails below least
# percent in one of them. Reads a profile of go test. A block that several test
# binaries report is covered if one of them ran it.
#
#   awk -v packages="sandbox internal/skill" -v least=90 -f coverage.awk cover.out

FNR == 1 && /^mode:/ { next }

{
	statements[$1] = $2
	if ($3 > 0)
		ran[$1] = 1
}

END {
	for (block in statements) {
		package = block
		sub(/:.*/, "", package)         # the position
		sub(/\/[^\/]*$/, "", package)   # the file
		sub(/^github\.com\/skillrun\/skillrun\//, "", package)
		all[package] += statements[block]
		if (block in ran)
			covered[package] += statements[block]
	}
	count = split(packages, wanted, " ")
	for (i = 1; i <= count; i++) {
		p = wanted[i]
		share = all[p] ? 100 * covered[p] / all[p] : 0
		verdict = ""
		if (share < least) {
			verdict = "  below " least " %"
			bad = 1
		}
		printf "%-22s %5d of %5d statements  %5.1f %%%s\n", p, covered[p], all[p], share, verdict
	}
	exit bad
}
