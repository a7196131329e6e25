package permission

import (
	"errors"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/spelling"
)

// Rules are the parsed entries of an allowed-tools field. The zero Rules cover nothing.
// Rules are immutable and safe for concurrent use.
type Rules struct {
	list    []rule
	baseDir string
	none    string // the reason for a command that no rule matches; empty: derived from the rules
	// byPath returns the name of a program on PATH for its path in a venv, see venvOf. Nil: no change.
	byPath func(word string) string
}

// A Problem is an entry of an allowed-tools field that probably does not match what its
// author meant.
type Problem struct {
	Rule   string // as written
	Reason string
}

// ParseRules parses the entries of allowed-tools. A field may hold several rules, separated
// by commas or by blanks outside parentheses. Quotes around a rule are removed. baseDir
// replaces {baseDir}, ${CLAUDE_SKILL_DIR} and ${CLAUDE_PLUGIN_ROOT} in the rules, and in
// the commands of Decide; if baseDir is empty, the names are kept. A rule that
// cannot be parsed is kept and matches nothing, see Problems.
//
// The forms of a rule, after quote removal and word by word:
//
//	Bash, Bash(*)       every command
//	Bash(git status)    exactly these words
//	Bash(git status:*)  these words and any further words; also Bash(git status *)
//	Bash(ls*)           a first word that begins with ls, and any further words
//	Bash(git * main)    an inner * matches any text, of one or several words
//
// A * in the first word does not match "/". A * next to other text in a word does not match
// "..": Bash(python3 scripts/*) stays in scripts.
//
// Rules for other tools (Read, WebFetch(...)) do not affect commands.
func ParseRules(fields []string, baseDir string) Rules {
	r := Rules{baseDir: baseDir}
	for _, field := range fields {
		for _, text := range splitRules(field) {
			if len(r.list) == MaxRules {
				return r
			}
			// "Bash, (git:*)" must not become an unscoped "Bash".
			if n := len(r.list); strings.HasPrefix(text, "(") && n > 0 {
				r.list[n-1] = rule{text: r.list[n-1].text, problem: "a separate parenthesis follows it"}
			}
			r.list = append(r.list, parseRule(text, baseDir))
		}
	}
	return r
}

// Problems returns the entries that match nothing, or less than they seem to.
func (r Rules) Problems() []Problem {
	var problems []Problem
	for _, one := range r.list {
		if one.problem != "" {
			problems = append(problems, Problem{Rule: one.text, Reason: one.problem})
		}
	}
	return problems
}

// Unscoped reports whether a rule grants every command.
func (r Rules) Unscoped() bool {
	for _, one := range r.list {
		if one.kind == wholeTool {
			return true
		}
	}
	return false
}

// splitRules splits a field at commas and at blanks outside parentheses. A blank before a
// parenthesis does not split: "Bash (git:*)" is not an unscoped "Bash".
func splitRules(field string) []string {
	var (
		entries []string
		entry   []byte
		depth   int
		blank   bool
	)
	flush := func() {
		if text := strings.Trim(string(entry), `"'`); text != "" {
			entries = append(entries, text)
		}
		entry = nil
	}
	for i := range len(field) {
		c := field[i]
		switch {
		case depth == 0 && strings.IndexByte(" \t\r\n", c) >= 0:
			blank = true
			continue
		case depth == 0 && c == ',':
			flush()
			blank = false
			continue
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		}
		if blank && c != '(' {
			flush()
		}
		blank = false
		entry = append(entry, c)
	}
	flush()
	return entries
}

// A ruleKind says how a rule compares a command's words.
type ruleKind int

const (
	otherTool ruleKind = iota // covers nothing; also for rules that cannot be parsed
	wholeTool
	exactWords
	wildcardWords
)

// A rule is one parsed entry of allowed-tools. parseRule makes it, and it never changes.
type rule struct {
	text    string // as written
	problem string
	kind    ruleKind
	words   []string // * is the constant wildcard
	pattern string   // words joined by boundary
	prefix  bool     // any further words may follow the pattern
	fixed   int      // number of leading words without a wildcard
}

var toolName = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_.:/-]*$`)

// shortTools are the tools of agents whose names a misspelled Bash could be taken for.
var shortTools = []string{"Bash", "Edit", "Glob", "Grep", "LS", "Read", "Skill", "Task", "Write"}

// parseRule parses one rule. A rule with a problem that makes it useless is kept as
// otherTool, which covers nothing.
func parseRule(text, baseDir string) rule {
	r := rule{text: text}
	name, rest, scoped := strings.Cut(text, "(")
	switch {
	case checkText(text) != nil:
		r.problem = checkText(text).Error()
	case scoped && !closesAtEnd("("+rest):
		r.problem = "its parentheses don't match, or text follows them"
	case name != "Bash" && strings.EqualFold(name, "Bash"):
		r.problem = "names of tools are case-sensitive: write Bash"
	case name != "Bash" && (!toolName.MatchString(name) || strings.HasPrefix(name, "Bash:")):
		r.problem = "not the name of a tool: write Bash(command:*)"
	case name != "Bash" && spelling.Closest(name, shortTools) == "Bash":
		r.problem = "no tool has this name: write Bash"
	case name != "Bash":
	case !scoped:
		r.kind = wholeTool
	default:
		if err := r.parseWords(strings.TrimSuffix(rest, ")"), baseDir); err != nil {
			r.kind, r.problem = otherTool, err.Error()
		}
	}
	return r
}

// closesAtEnd reports whether the last byte of s, and no earlier one, closes the
// parenthesis that s begins with.
func closesAtEnd(s string) bool {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return i == len(s)-1
		}
	}
	return false
}

// parseWords parses the text in the parentheses of Bash(...).
func (r *rule) parseWords(body, baseDir string) error {
	body = strings.TrimSpace(body)
	if body == "*" {
		r.kind = wholeTool
		return nil
	}
	words := body
	for _, ending := range []string{":*", " *", "\t*", "\n*"} {
		if cut, ok := strings.CutSuffix(body, ending); ok {
			words, r.prefix = strings.TrimSpace(cut), true
			break
		}
	}
	if words == "" {
		return errors.New("it names no command: write Bash to allow all of them")
	}
	list, err := ruleWords(words, baseDir)
	if err != nil {
		return err
	}
	r.words, r.pattern = list, strings.Join(list, boundary)
	r.kind = exactWords
	if r.prefix || strings.Contains(r.pattern, wildcard) {
		r.kind = wildcardWords
	}
	for r.fixed < len(list) && !strings.Contains(list[r.fixed], wildcard) {
		r.fixed++
	}
	if r.fixed > 0 && isBuiltin(list[0]) {
		return fmt.Errorf("%s is a shell builtin and no shell runs here", excerpt(list[0]))
	}
	if fixed := list[:r.fixed]; r.kind == wildcardWords && r.fixed > 0 && runnerAt(fixed) >= 0 && !r.namesLaunched() {
		r.problem = runnerProblem(fixed, fixed)
	}
	return nil
}

// ruleWords parses the words of a rule as the words of one simple command.
func ruleWords(text, baseDir string) ([]string, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true)).Parse(strings.NewReader(text), "")
	if err != nil {
		return nil, fmt.Errorf("it does not parse: %w", err)
	}
	if len(file.Stmts) != 1 || len(file.Last) > 0 || len(file.Stmts[0].Comments) > 0 {
		return nil, errors.New("it is not one simple command")
	}
	stmt := file.Stmts[0]
	call, ok := stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(stmt.Redirs) > 0 || len(call.Assigns) > 0 || stmt.Negated || stmt.Semicolon.IsValid() {
		return nil, errors.New("it is not one simple command")
	}
	r := reader{source: text, baseDir: baseDir, pattern: true}
	var words []string
	for _, w := range call.Args {
		word, err := r.word(w)
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	if words[0] == "" {
		return nil, errors.New("the name of its command is empty")
	}
	return words, nil
}
