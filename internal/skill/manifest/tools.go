package manifest

import "strings"

// splitTools splits the text of an allowed-tools field at commas and at blanks outside
// parentheses. It removes quotes around an entry. A blank before a parenthesis does not
// split: "Bash (git:*)" must not become an unscoped "Bash". Package permission splits each entry
// again, with the same rules, for fields that hold several.
func splitTools(text string) []string {
	var (
		entries []string
		entry   strings.Builder
		depth   int
		blank   bool // blanks follow the entry so far
	)
	flush := func() {
		if e := strings.Trim(entry.String(), `"'`); e != "" {
			entries = append(entries, e)
		}
		entry.Reset()
		blank = false
	}
	for _, r := range text {
		if depth == 0 {
			switch r {
			case ' ', '\t', '\n', '\r':
				blank = true
				continue
			case ',':
				flush()
				continue
			}
			if blank && r != '(' {
				flush()
			}
			blank = false
		}
		switch r {
		case '(':
			depth++
		case ')':
			depth = max(depth-1, 0)
		}
		entry.WriteRune(r)
	}
	flush()
	return entries
}
