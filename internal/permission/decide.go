package permission

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A Decision says whether a command line may run.
type Decision struct {
	Allowed bool
	// Reason is one sentence: why, or why not and what would help.
	Reason string
	// Rule is the rules that cover the line, as written, each once, separated by
	// ", ". Empty if it is refused.
	Rule string
	// Missing is a rule that would cover the command that none covers. Empty if it
	// is allowed, or if no rule would help.
	Missing string
	// Plan is what runs. Nil if it is refused.
	Plan Plan
}

// Decide checks a command line against the rules.
func (r Rules) Decide(command string) Decision {
	plan, err := parse(command, r.baseDir)
	if err != nil {
		return Decision{Reason: err.Error()}
	}
	var covering []string
	for _, c := range plan.commands() {
		rule, refused := r.cover(c)
		if refused != nil {
			return Decision{Reason: refused.reason, Missing: refused.missing}
		}
		if !slices.Contains(covering, rule) {
			covering = append(covering, rule)
		}
	}
	rules := strings.Join(covering, ", ")
	return Decision{Allowed: true, Reason: "covered by " + rules, Rule: rules, Plan: plan}
}

// A refusal says why no rule covers a command.
type refusal struct {
	reason  string
	missing string
}

// cover returns the text of a rule that covers one simple command: the command
// itself, or what a harmless wrapper around it runs.
func (r Rules) cover(c SimpleCommand) (string, *refusal) {
	var refused *refusal
	first := len(c.Args) // the first pattern of file names
	if len(c.Globs) > 0 {
		first = c.Globs[0].Arg
		if reason := globDanger(c.Args, first); reason != "" {
			return "", &refusal{reason: reason}
		}
	}
	innermost := c.Args
	for inner := c.Args; inner != nil; inner = unwrap(inner) {
		innermost = inner
		if isBuiltin(inner[0]) {
			return "", &refusal{reason: builtinReason(inner[0])}
		}
		for _, one := range r.list {
			if !one.matches(inner, first-(len(c.Args)-len(inner))) {
				continue
			}
			exception := one.exception(inner)
			if exception == "" {
				return one.text, nil
			}
			refused = &refusal{
				reason:  fmt.Sprintf("%s is not covered by %s: %s", summary(inner), excerpt(one.text), exception),
				missing: exactRule(inner),
			}
		}
	}
	if refused == nil {
		refused = r.uncovered(innermost)
	}
	return "", refused
}

// exception says why a rule that matches does not cover after all, or "". Only
// what a wildcard let in is looked at.
func (r rule) exception(args []string) string {
	if r.kind != wildcardWords {
		return ""
	}
	if !isRunner(args[0]) {
		return danger(args, r.fixed)
	}
	at := 0
	if r.fixed > 0 {
		at = payload(args[:r.fixed])
	}
	if at == 0 {
		return fmt.Sprintf("%s runs other programs, so the rule has to name which", excerpt(args[0]))
	}
	return danger(args[at:], r.fixed-at)
}

func builtinReason(name string) string {
	switch name {
	case "cd", "chdir", "pushd", "popd":
		return fmt.Sprintf("%s is a shell builtin and no shell runs here: set working_directory in the request, or name paths from there", excerpt(name))
	case "export":
		return "'export' is a shell builtin and no shell runs here: set env in the request"
	}
	return fmt.Sprintf("%s is a shell builtin and no shell runs here: name a program", excerpt(name))
}

// uncovered is the refusal of a command that no rule matches.
func (r Rules) uncovered(args []string) *refusal {
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

var subcommand = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// summary names a command in a sentence: the program, and its subcommand if
// the second word looks like one.
func summary(args []string) string {
	if len(args) > 1 && subcommand.MatchString(args[1]) {
		return excerpt(args[0] + " " + args[1])
	}
	return excerpt(args[0])
}

// missingRule is a narrow rule that would cover args, or "" if it can't be
// written down.
func missingRule(args []string) string {
	if isRunner(args[0]) || danger(args, 1) != "" {
		return exactRule(args)
	}
	words := args[:1]
	if len(args) > 1 && subcommand.MatchString(args[1]) {
		words = args[:2]
	}
	return asRule(words, ":*")
}

// exactRule is the rule for exactly these words.
func exactRule(args []string) string { return asRule(args, "") }

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
