package permission

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// A Decision says whether a command line may run.
type Decision struct {
	Allowed bool
	// Reason is one sentence: why the line is allowed or refused, and what would help.
	Reason string
	// Rule has the rules that cover the line, as written and without repetitions, separated
	// by ", ". Empty if the line is refused.
	Rule string
	// Missing is a rule that would cover the first command without a rule. Empty if the
	// line is allowed or no rule would help.
	Missing string
	// Instead is another way to the result of a refused line, or empty.
	Instead Instead
	// Plan has the programs to run. Nil if the line is refused.
	Plan Plan

	scoped bool       // the line is allowed, and not by an unscoped Bash rule
	code   []codeWord // words of the commands whose rules name their code
}

// Instead is a remedy for the caller of a refused line.
type Instead string

const (
	// InsteadDirectory: start in the directory, which is a field of every request.
	InsteadDirectory Instead = "working_directory"
	// InsteadCode: send the line as code, since it needs a feature that only a shell or a language has.
	InsteadCode Instead = "code"
)

// A needsCode refuses a part of a line that no rule can allow. Code can do the same.
type needsCode struct{ error }

// Decide checks a command line against the rules. Every simple command of the line must be
// covered. Each refusal has one reason, the first one that Decide finds, because a model mends one
// mistake at a time.
func (r Rules) Decide(command string) Decision {
	plan, err := parse(command, r.baseDir)
	if err != nil {
		d := Decision{Reason: err.Error()}
		if errors.As(err, new(needsCode)) {
			d.Instead = InsteadCode
		}
		return d
	}
	var texts []string
	var covers []cover
	commands := plan.commands()
	for _, c := range commands {
		covered, refused := r.cover(c)
		if refused != nil {
			return Decision{Reason: refused.reason, Missing: refused.missing, Instead: refused.instead}
		}
		covers = append(covers, covered)
		if !slices.Contains(texts, covered.rule) {
			texts = append(texts, covered.rule)
		}
	}
	rules := strings.Join(texts, ", ")
	r.startByName(plan)
	d := Decision{Allowed: true, Reason: "covered by " + rules, Rule: rules, Plan: plan}
	if r.Unscoped() {
		return d
	}
	if reason := checkLine(commands, covers); reason != "" {
		return Decision{Reason: reason}
	}
	d.scoped = true
	at := 0 // plan.commands, and so covers, has the commands of all steps in this order
	for _, step := range plan {
		for i := range step.Pipeline {
			c := &step.Pipeline[i]
			c.Env = slices.Concat(without(c.Env, covers[at].env), covers[at].env)
			if covers[at].code != nil {
				d.code = append(d.code, *covers[at].code)
			}
			at++
		}
	}
	return d
}

// without returns the variables of env whose names are not in other.
func without(env, other []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.ContainsFunc(other, func(o string) bool { return strings.HasPrefix(o, name+"=") })
	})
}

// A cover describes how a rule covers one simple command.
type cover struct {
	rule  string
	args  []string // without wrappers, see unwrap
	exact bool     // the rule has every word of the command
	// code is the code to run, if all rules that cover the command name it.
	// Nil: any code.
	code *codeWord
	env  []string // added to the command's environment
}

// A refusal has the reason why no rule covers a command.
type refusal struct {
	reason  string
	missing string
	instead Instead
}

// cover finds the rule that covers a simple command, or the command inside a harmless
// wrapper (see unwrap). It prefers a rule that does not name the code, because such a rule
// allows more. A refusal names the innermost command. If a rule matches but has an exception,
// that exception is the reason: it says more than "not covered".
func (r Rules) cover(c SimpleCommand) (cover, *refusal) {
	var refused *refusal
	// The command's own process expands patterns later, so the words from the first pattern on may
	// become others: see matches.
	first := len(c.Args) // position of the first pattern of file names
	if len(c.Globs) > 0 {
		first = c.Globs[0].Arg
		if reason := globDanger(c.Args, first); reason != "" {
			return cover{}, &refusal{reason: reason}
		}
	}
	innermost := c.Args
	for inner := c.Args; inner != nil; inner = unwrap(inner) {
		innermost = inner
		if isBuiltin(inner[0]) {
			return cover{}, builtinRefusal(inner[0])
		}
		var found *cover
		for _, one := range r.list {
			if !one.matches(inner, first-(len(c.Args)-len(inner))) {
				continue
			}
			exception := one.exception(inner)
			if exception == "" {
				c := one.coverOf(inner, r.named(inner))
				if c.code == nil {
					return c, nil
				}
				if found == nil {
					found = &c
				}
				continue
			}
			refused = &refusal{
				reason:  fmt.Sprintf("%s is not covered by %s: %s", summary(inner), excerpt(one.text), exception),
				missing: exactRule(inner),
			}
		}
		if found != nil {
			return *found, nil
		}
	}
	if refused == nil {
		refused = r.uncovered(innermost)
	}
	return cover{}, refused
}

// coverOf describes how r covers args, which it must match. named are the words that run, see
// Rules.named.
func (r rule) coverOf(args, named []string) cover {
	c := cover{rule: r.text, args: named, exact: r.kind == exactWords}
	if r.kind == wholeTool {
		return c
	}
	if code, ok := r.codeOf(named); ok {
		c.code = &code
	}
	fixed := r.fixed
	if c.exact {
		fixed = len(args)
	}
	c.env = gitEnv(args, fixed)
	return c
}

// exception returns the reason why a rule does not cover args although it matches them, or "". It
// checks only the words that a wildcard matched.
func (r rule) exception(args []string) string {
	if r.kind != wildcardWords {
		return ""
	}
	if word := r.leaves(args); word != "" {
		return fmt.Sprintf("%s leaves the folder that the rule names by \"..\"", excerpt(word))
	}
	as, words, launches, named := r.launched(args)
	if named {
		return as.exception(words)
	}
	if runnerAt(args) < 0 {
		return danger(args, r.fixed)
	}
	fixed := args[:r.fixed]
	if launches {
		fixed = nil
	}
	if problem := runnerProblem(fixed, args); problem != "" {
		return problem
	}
	at := payload(fixed)
	if base := runnerName(args[0]); guarded(args[at]) && (base == "xargs" || base == "gxargs") {
		return fmt.Sprintf("%s takes words for %s from standard input, which can't be checked", excerpt(args[0]), excerpt(args[at]))
	}
	return danger(args[at:], r.fixed-at)
}

// builtinRefusal returns the refusal of a shell's builtin, with a remedy.
func builtinRefusal(name string) *refusal {
	switch name {
	case "cd", "chdir", "pushd", "popd":
		return &refusal{instead: InsteadDirectory, reason: fmt.Sprintf("%s is a shell builtin and no shell runs here: set working_directory in the request, or name paths from there", excerpt(name))}
	case "export":
		return &refusal{reason: "'export' is a shell builtin and no shell runs here: set env in the request"}
	}
	return &refusal{reason: fmt.Sprintf("%s is a shell builtin and no shell runs here: name a program", excerpt(name))}
}

// uncovered builds the refusal of a command that no rule matches.
func (r Rules) uncovered(args []string) *refusal {
	if r.none != "" {
		return &refusal{reason: fmt.Sprintf("%s is not covered: %s", summary(args), r.none), missing: missingRule(args)}
	}
	var bash []string
	for _, one := range r.list {
		if one.kind != otherTool && !slices.Contains(bash, one.text) {
			bash = append(bash, one.text)
		}
	}
	if len(bash) == 0 {
		return &refusal{
			reason:  fmt.Sprintf("%s is not covered: allowed-tools has no Bash rule that allows a command", summary(args)),
			missing: missingRule(args),
		}
	}
	const shown = 8
	more := ""
	if len(bash) > shown {
		more = fmt.Sprintf(" and %d more", len(bash)-shown)
		bash = bash[:shown]
	}
	return &refusal{
		reason:  fmt.Sprintf("%s is not covered by any rule: allowed are %s%s", summary(args), strings.Join(bash, ", "), more),
		missing: missingRule(args),
	}
}

var subcommand = lazyregexp.New(`^[a-z][a-z0-9-]*$`)

// summary names a command in a sentence: the program, and the second word if it looks like
// a subcommand.
func summary(args []string) string {
	if len(args) > 1 && subcommand.MatchString(args[1]) {
		return excerpt(args[0] + " " + args[1])
	}
	return excerpt(args[0])
}

// missingRule returns a narrow rule that would cover args, or "" if args cannot be written
// as a rule. It is only a suggestion for the skill's author.
func missingRule(args []string) string {
	if runnerAt(args) >= 0 || danger(args, 1) != "" {
		return exactRule(args)
	}
	words := args[:1]
	if len(args) > 1 && subcommand.MatchString(args[1]) {
		words = args[:2]
	}
	return asRule(words, ":*")
}

// exactRule returns the rule for exactly these words, or "" if they cannot be written as a
// rule.
func exactRule(args []string) string { return asRule(args, "") }

// asRule writes words as a rule. It returns "" if a word cannot be quoted in a rule, or if
// the rule would be longer than a sentence can show.
func asRule(words []string, ending string) string {
	const most = 200
	var list []string
	for _, w := range words {
		quoted, err := syntax.Quote(w, syntax.LangBash)
		if err != nil || strings.ContainsAny(quoted, "()$") {
			return ""
		}
		list = append(list, quoted)
	}
	text := "Bash(" + strings.Join(list, " ") + ending + ")"
	if len(text) > most {
		return ""
	}
	return text
}
