// Package spelling finds the word that someone meant.
package spelling

import "slices"

// Closest returns the name that is at most two edits away from a misspelled name. It returns "" if
// no name is that close.
// Two edits find a swapped or a missing letter and still tell memory from message_bytes.
func Closest(word string, names []string) string {
	best, at := "", 3
	for _, name := range names {
		if d := edits(word, name); d < at {
			best, at = name, d
		}
	}
	return best
}

// edits is the Levenshtein distance of two words. It counts bytes: the names are ASCII.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = slices.Min([]int{cost, row[j] + 1, row[j+1] + 1})
		}
	}
	return row[len(b)]
}
