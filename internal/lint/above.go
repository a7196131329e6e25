package lint

import (
	"strconv"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// Steps from a file to its parents, with pathlib and os.path. A name in front of the steps may be a variable.
var (
	pathFile  = lazyregexp.New(`\b(?:pathlib\.)?Path\(\s*__file__\s*\)`)
	pathSteps = lazyregexp.New(`\b([A-Za-z_]\w*)((?:\.(?:resolve|absolute)\(\s*\)|\.parents\[\s*[0-9]+\s*\]|\.parent\b)+)`)
	pathStep  = lazyregexp.New(`\.parents\[\s*([0-9]+)\s*\]|\.parent\b`)
	dirNames  = lazyregexp.New(`((?:\b(?:os\.)?(?:path\.)?dirname\(\s*)+)(?:\b(?:os\.)?(?:path\.)?(?:abspath|realpath)\(\s*)?([A-Za-z_]\w*)[\s)]*`)
	// assigned is a statement that sets a name to an expression. bound has names that a line binds otherwise.
	assigned = lazyregexp.New(`^\s*([A-Za-z_]\w*)\s*(?::[^=]*)?=\s*(.*?)\s*$`)
	// These are several expressions because one would take a time that grows with the square of some lines: it reads
	// to the end of "for x as y for x as y" for each match.
	bound = []*lazyregexp.Regexp{
		lazyregexp.New(`\bfor\s+(.*?)\s+in\b`), lazyregexp.New(`\bas\s+([A-Za-z_]\w*)`), lazyregexp.New(`\b(?:def|lambda)\b(.*)`),
	}
	// passed is a call with one path as its argument, defined a function with its first parameter.
	passed  = lazyregexp.New(`\b([A-Za-z_]\w*)\(\s*(__file__(?:\.(?:resolve|absolute)\(\s*\)|\.parents\[\s*[0-9]+\s*\]|\.parent\b)*)\s*\)`)
	defined = lazyregexp.New(`^\s*def\s+([A-Za-z_]\w*)\(\s*([A-Za-z_]\w*)`)
	names   = lazyregexp.New(`[A-Za-z_]\w*`)
)

// fileWord stands for Path(__file__) and __file__.
const fileWord = "__file__"

// aboveSkill looks for Python programs that go from their own file to directories above the skill's folder, as in the
// repository of the author. Only paths that begin with __file__, variables that are set to such a path in an earlier
// line, and parameters of functions that are called with such a path alone, are known. A loop that climbs is not known:
// it may end where a sandbox does.
func (c *check) aboveSkill(p program) {
	if p.language != "python" {
		return
	}
	depth := strings.Count(p.path, "/") + 1 // steps to the skill's folder
	levels := map[string]int{fileWord: 0}   // by variable: steps above the file
	arguments := map[string]int{}           // by function
	code := scanPython(p.text).code
	for i := range code {
		code[i] = pathFile.ReplaceAllString(code[i], fileWord)
		for _, m := range passed.FindAllStringSubmatch(code[i], -1) {
			arguments[m[1]] = countSteps(m[2])
		}
	}
	for i, line := range code {
		if most := stepsOf(line, levels); most > depth {
			c.warn(p.path, i+1, RuleAboveSkill, "goes to a directory above the skill's folder, where a sandbox has nothing of a repository: put what the program needs into the skill, or take its path as an argument")
			return // the others follow from it
		}
		if m := assigned.FindStringSubmatch(line); m != nil {
			if n, ok := isSteps(m[2], levels); ok && !strings.HasPrefix(m[2], m[1]+".") {
				levels[m[1]] = n
			} else {
				delete(levels, m[1])
			}
			continue
		}
		if m := defined.FindStringSubmatch(line); m != nil {
			if n, ok := arguments[m[1]]; ok {
				levels[m[2]] = n
				continue
			}
		}
		for _, form := range bound {
			for _, m := range form.FindAllStringSubmatch(line, -1) {
				for _, name := range names.FindAllString(m[1], -1) {
					if name != fileWord {
						delete(levels, name)
					}
				}
			}
		}
	}
}

// stepsOf returns the most steps that an expression of the line goes above the file, or 0.
func stepsOf(line string, levels map[string]int) (most int) {
	for _, m := range pathSteps.FindAllStringSubmatch(line, -1) {
		if from, ok := levels[m[1]]; ok {
			most = max(most, from+countSteps(m[2]))
		}
	}
	for _, m := range dirNames.FindAllStringSubmatch(line, -1) {
		if from, ok := levels[m[2]]; ok {
			most = max(most, from+strings.Count(m[1], "dirname("))
		}
	}
	return most
}

// isSteps reports whether an expression is a path of stepsOf and nothing else, and returns its steps.
func isSteps(text string, levels map[string]int) (int, bool) {
	if n, ok := levels[text]; ok {
		return n, true
	}
	for _, form := range []*lazyregexp.Regexp{pathSteps, dirNames} {
		if m := form.FindStringSubmatch(text); m != nil && m[0] == text {
			name := m[1]
			if form == dirNames {
				name = m[2]
			}
			_, ok := levels[name]
			return stepsOf(text, levels), ok
		}
	}
	return 0, false
}

func countSteps(chain string) (n int) {
	for _, m := range pathStep.FindAllStringSubmatch(chain, -1) {
		n++
		if m[1] != "" {
			up, _ := strconv.Atoi(m[1]) // too many digits: some large number
			n += min(up, 1000)
		}
	}
	return n
}
