package permission

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// Unlisted has the programs that command lines of a skill without allowed-tools may run. The zero
// Unlisted allows none.
type Unlisted struct {
	// Scripts allows the skill's own scripts: exactly these files, wherever they lie in the skill, with
	// any arguments, run by an interpreter or directly.
	Scripts bool
	// Rules are entries as in allowed-tools.
	Rules []string
}

// OwnScripts is the word for Unlisted.Scripts in a list of rules.
const OwnScripts = "scripts"

// ParseUnlisted reads a list of rules, in which OwnScripts may stand.
func ParseUnlisted(list []string) Unlisted {
	var u Unlisted
	for _, entry := range list {
		if entry == OwnScripts {
			u.Scripts = true
		} else {
			u.Rules = append(u.Rules, entry)
		}
	}
	return u
}

// CheckUnlisted returns the reason why an entry of such a list allows nothing, or "".
func CheckUnlisted(entry string) string {
	if entry == OwnScripts {
		return ""
	}
	rules := ParseRules([]string{entry}, "")
	if problems := rules.Problems(); len(problems) > 0 {
		return problems[0].Reason
	}
	if len(rules.list) == 0 || slices.ContainsFunc(rules.list, func(r rule) bool { return r.kind == otherTool }) {
		return "not a Bash rule: write scripts, or a rule such as Bash(git log:*)"
	}
	return ""
}

// decideUnlisted decides about a command line of a skill without allowed-tools. dir is the working
// directory, relative to the workspace.
func (p Policy) decideUnlisted(dir string, sk *skill.Skill, command string) Decision {
	rules := ParseRules(p.Unlisted.Rules, sk.BaseDir())
	rules.byPath = venvOf(sk)
	if p.Unlisted.Scripts {
		rules.add(ownScriptRules(path.Clean(dir), sk, command)...)
	}
	rules.none = "the skill has no allowed-tools, so no command may run: add a rule such as Bash(git status:*) to its SKILL.md"
	const listToo = "; once SKILL.md has allowed-tools, its own scripts must be listed there, too"
	own, listed := ownScriptRule(sk), len(p.Unlisted.Rules) > 0
	switch scripts := p.Unlisted.Scripts && own != ""; {
	case scripts && listed:
		rules.none = "the skill has no allowed-tools, so only its own scripts, such as " + own + ", and the commands that the daemon's configuration lists (without_allowed_tools) may run" + listToo
	case scripts:
		rules.none = "the skill has no allowed-tools, so only its own scripts may run, such as " + own + listToo
	case listed:
		rules.none = "the skill has no allowed-tools, so the daemon's configuration decides (without_allowed_tools)"
	}
	d := p.Decide(rules, command)
	if d.Allowed {
		d.Reason = "the skill has no allowed-tools, and the daemon's configuration allows " + d.Rule
	}
	return d
}

// add adds rules to r, which nothing else may use yet.
func (r *Rules) add(more ...rule) { r.list = append(r.list, more...) }

// ownInterpreters run a script whose path is the first operand. They need no match with the
// script's language: an interpreter of another language refuses it, or runs the same file.
var ownInterpreters = lazyregexp.New(`^(python(3(\.[0-9]+)?)?|node|ruby|perl|bash|sh|dash|zsh)$`)

// ownFlags are options before the script that choose no other code: python(1), bash(1).
var ownFlags = map[string]*lazyregexp.Regexp{
	"python": lazyregexp.New(`^-[uBOsE]+$`), "bash": lazyregexp.New(`^-[eux]+$`), "sh": lazyregexp.New(`^-[eux]+$`),
}

// ownScriptRules returns a rule for each command in the line that runs a script of the skill. The
// rule has the words up to the script letter by letter, and a wildcard after them. So every other
// check of rules holds for it, and it allows only these words.
//
// checkLine compares names relative to the workspace. So in another directory a line may write
// no files, and may run only own scripts.
func ownScriptRules(dir string, sk *skill.Skill, command string) []rule {
	plan, err := parse(command, sk.BaseDir())
	if err != nil {
		return nil // Decide says why
	}
	var rules []rule
	for _, c := range plan.commands() {
		if dir != "." && slices.ContainsFunc(c.Redirects, func(r Redirect) bool { return r.Kind == Write || r.Kind == Append }) {
			return nil
		}
		before := len(rules)
		for inner := c.Args; inner != nil; inner = unwrap(inner) {
			if n := ownScript(dir, sk, inner); n > 0 {
				rules = append(rules, rule{
					text: cmp.Or(asRule(inner[:n], ":*"), OwnScripts), kind: wildcardWords, words: inner[:n],
					pattern: strings.Join(inner[:n], boundary), prefix: true, fixed: n,
				})
			}
		}
		if dir != "." && len(rules) == before {
			return nil
		}
	}
	return rules
}

// ownScript returns the number of words up to a script of the skill, or 0 if args run none. dir is
// the working directory, as path.Clean returns it.
func ownScript(dir string, sk *skill.Skill, args []string) int {
	if l, ok, err := manifest.ParseLaunch(args); ok {
		if err != nil || len(l.Args(args)) == 0 {
			return 0
		}
		if n := ownScript(dir, sk, l.Args(args)); n > len(l.Program) {
			return n - len(l.Program) + l.Rest
		}
		return 0
	}
	at := 0
	program := args[0]
	if dir == "." {
		program = venvOf(sk)(program)
	}
	if ownInterpreters.MatchString(program) {
		at = 1
		flags := ownFlags[strings.TrimRight(program, "0123456789.")]
		if len(args) > 2 && flags != nil && flags.MatchString(args[1]) {
			at = 2
		}
	}
	if at >= len(args) {
		return 0
	}
	if at > 0 && args[at] == "-m" && dir == "." && ownPython.MatchString(program) {
		return ownModule(sk, args[at+1:], at+2)
	}
	word := args[at]
	file, ok := strings.CutPrefix(word, sk.BaseDir()+"/")
	switch {
	case ok:
	case strings.HasPrefix(word, skill.WorkspaceDir+"/") && at > 0:
		file = strings.TrimPrefix(word, skill.WorkspaceDir+"/")
	case strings.HasPrefix(word, "/") || at == 0 && !strings.Contains(word, "/"):
		return 0 // a program of the system
	default:
		file = dir + "/" + word
	}
	if slices.Contains(strings.Split(file, "/"), "..") {
		return 0
	}
	if s, ok := sk.Script(path.Clean(file)); ok && s.Runnable() {
		return at + 1
	}
	return 0
}

// ownPython is an interpreter that knows -m.
var ownPython = lazyregexp.New(`^python(3(\.[0-9]+)?)?$`)

// ownModules are modules in scripts/, into which a request cannot put files (refusedByRules).
var ownModules = lazyregexp.New(`^scripts(\.[A-Za-z_][A-Za-z0-9_]*)+$`)

// ownModule returns n if the first of args is a script of the skill in scripts/ by its name as a
// module, such as scripts.report, else 0. Python searches it in the working directory first, which
// must be the workspace.
func ownModule(sk *skill.Skill, args []string, n int) int {
	if len(args) == 0 || !ownModules.MatchString(args[0]) {
		return 0
	}
	if s, ok := sk.Script(strings.ReplaceAll(args[0], ".", "/") + ".py"); ok && s.Runnable() {
		return n
	}
	return 0
}

// ownScriptRule returns a command that runs a script of the skill, as an example, or "".
func ownScriptRule(sk *skill.Skill) string {
	for _, s := range sk.Scripts {
		if s.Runnable() {
			return fmt.Sprintf("%s {baseDir}/%s", s.Language, s.Path)
		}
	}
	for e := range sk.Entries() {
		if s, ok := sk.Script(e.Path); ok && s.Runnable() {
			return fmt.Sprintf("%s {baseDir}/%s", s.Language, s.Path)
		}
	}
	return ""
}

// Commands returns the texts of the rules for command lines of a skill. Without allowed-tools these are
// the rules of the policy, and the scripts that detection found.
func (p Policy) Commands(sk *skill.Skill) []string {
	rules := RulesOf(sk)
	commands := []string{}
	if !sk.Manifest.HasAllowedTools {
		rules = ParseRules(p.Unlisted.Rules, sk.BaseDir())
		for _, s := range sk.Scripts {
			if p.Unlisted.Scripts && s.Runnable() {
				commands = append(commands, "Bash("+s.Language+" {baseDir}/"+s.Path+":*)")
			}
		}
	}
	for _, one := range rules.list {
		if one.problem == "" && one.kind != otherTool {
			commands = append(commands, one.text)
		}
	}
	return commands
}
