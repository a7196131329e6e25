package permission

import (
	"errors"
	"fmt"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/skill"
)

// A Principal is the authenticated caller. Package ingress makes it, from the connection and
// never from a message.
type Principal struct {
	Tenant string
	Name   string
}

// SourceKind is the kind of program that a request wants to run.
type SourceKind int

// Script is a file of the skill, Code a program as text, Command a line that is checked
// against allowed-tools. The zero SourceKind is invalid and is never granted.
const (
	Script SourceKind = iota + 1
	Code
	Command
)

// String is the word in the record and in the log.
func (k SourceKind) String() string {
	switch k {
	case Script:
		return "script"
	case Code:
		return "code"
	case Command:
		return "command"
	}
	return "unknown"
}

// A Source is the program that a request wants to run. Only the fields of its kind count.
type Source struct {
	Kind     SourceKind
	Script   string // path relative to the skill
	Code     string
	Language string // of Code
	Command  string
	Dir      string // of Command: the working directory, relative to the workspace; empty: the workspace
}

// Policy has the permissions of a tenant. The zero Policy allows scripts, code and checked
// commands, without network and without a shell.
type Policy struct {
	// Network says which skills get a network.
	Network Network
	// Shell runs the command lines of a skill with an unscoped Bash rule in bash, with
	// every expansion, instead of the parsed plan.
	Shell bool
	// NoCode refuses inline code.
	NoCode bool
	// Unlisted has the programs that command lines of a skill without allowed-tools may run.
	Unlisted Unlisted
}

// A Grant is proof that Check approved one source of one skill for one principal. Only this
// package can make one that approves something; the zero Grant approves nothing. A copy of a
// Grant approves the same. Copies share the plan and the skill, which never change.
type Grant struct {
	valid     bool
	principal Principal
	skill     *skill.Skill
	source    Source
	plan      Plan
	network   *policy.Rules
	learns    bool
	narrowed  bool
	allowKey  string
	secrets   []credential.Binding
	rule      string
	scoped    bool       // for RefusesFile, see Decision
	code      []codeWord // for RefusesFile, see Decision
	loads     []codeWord // for Hides: the words that name the code of the source, whether or not a rule covers it
}

// Valid reports whether g approves anything.
func (g Grant) Valid() bool { return g.valid }

// Principal returns the approved caller.
func (g Grant) Principal() Principal { return g.principal }

// Skill returns the approved skill, or nil for the zero Grant.
func (g Grant) Skill() *skill.Skill { return g.skill }

// Source returns the approved source.
func (g Grant) Source() Source { return g.source }

// Rule returns what allowed the source: the rules that cover a command, separated by ", ", or the
// kind of source that the policy allows.
func (g Grant) Rule() string { return g.rule }

// Plan returns the plan of an approved command, or nil for a script or code. The caller
// must not change it.
func (g Grant) Plan() Plan { return g.plan }

// Network returns the rules of the source's network, or nil if it runs without one.
func (g Grant) Network() *policy.Rules { return g.network }

// Narrowed reports whether the request had allow rules for the network.
func (g Grant) Narrowed() bool { return g.narrowed }

// AllowKey names the list that the rules of the network come from, such as "network.skills.pdf.allow".
func (g Grant) AllowKey() string { return g.allowKey }

// Learns reports whether the network's connections become rules: see [policy.Learn].
func (g Grant) Learns() bool { return g.learns }

// Credentials returns the credentials of the source's requests. They have no secrets. The caller must not
// change them.
func (g Grant) Credentials() []credential.Binding { return g.secrets }

// Denied is the refusal of a source.
type Denied struct {
	Command string // the command line; empty for a script or code
	Reason  string // one sentence
	// Rule is the rule that allowed-tools would need; empty if no rule would help.
	Rule string
	// Instead is another way to the same result, or empty.
	Instead Instead
}

func (e *Denied) Error() string {
	if e.Command == "" {
		return "denied: " + e.Reason
	}
	return fmt.Sprintf("command %s denied: %s", excerpt(e.Command), e.Reason)
}

// Message returns the refusal of a command in the words of the published tool contract.
// docs/contracts.md has the source of the words.
func (e *Denied) Message() string {
	return "Command not allowed by skill permissions: " + e.Command
}

// Check decides whether a principal may run a source of a skill. network has the request's rules for
// its network, or is nil if the request has none. The error is a *Denied, a *NetworkRefused, a
// *NetworkRequestError, or a *snapshot.PathError about the path of a script.
func (p Policy) Check(who Principal, sk *skill.Skill, src Source, network *policy.Config) (Grant, error) {
	if sk == nil {
		return Grant{}, errors.New("check: no skill")
	}
	g := Grant{valid: true, principal: who, skill: sk, source: src, rule: src.Kind.String()}
	switch src.Kind {
	case Script:
		entry, err := sk.Lookup(src.Script)
		if err != nil {
			return Grant{}, err
		}
		g.loads = []codeWord{{name: skill.WorkspaceDir + "/" + entry.Path}}
		if p.NoCode {
			g.code = g.loads
		}
	case Code:
		if p.NoCode {
			return Grant{}, &Denied{Reason: "inline code is switched off by the tenant's policy: put it into a script of the skill"}
		}
	case Command:
		d := p.decideIn(src.Dir, sk, src.Command)
		if !d.Allowed {
			return Grant{}, &Denied{Command: src.Command, Reason: d.Reason, Rule: d.Missing, Instead: p.instead(d)}
		}
		g.plan, g.rule, g.scoped, g.code = d.Plan, d.Rule, d.scoped, d.code
		g.loads = loadsOf(d.Plan)
	default:
		return Grant{}, &Denied{Reason: "the request names neither a script nor code nor a command"}
	}
	var err error
	if g.network, err = p.Network.rules(sk, network); err != nil {
		return Grant{}, err
	}
	if g.network != nil {
		g.narrowed, g.allowKey = network != nil && len(network.Allow) > 0, p.Network.allowKey(sk)
	}
	secretsFor := g.network
	if g.learns = network != nil && network.Learn; g.learns {
		// A learning skill gets no credential that it would not get otherwise.
		secretsFor, _ = p.Network.named(sk.Name, sk.Digest)
	}
	g.secrets = p.Network.credentials(sk, secretsFor)
	return g, nil
}

// DecideFor decides about a command line of a skill exactly as Check does. The command line
// starts in the workspace.
func (p Policy) DecideFor(sk *skill.Skill, command string) Decision {
	return p.decideIn("", sk, command)
}

func (p Policy) decideIn(dir string, sk *skill.Skill, command string) Decision {
	if !sk.Manifest.HasAllowedTools {
		return p.decideUnlisted(dir, sk, command)
	}
	return p.Decide(RulesOf(sk), command)
}

// instead returns the decision's remedy, unless the policy refuses that, too.
func (p Policy) instead(d Decision) Instead {
	if d.Instead == InsteadCode && p.NoCode {
		return ""
	}
	return d.Instead
}

// RulesOf returns the rules of a skill, which are parsed once for each skill.
func RulesOf(sk *skill.Skill) Rules {
	type key struct{}
	rules, _ := skill.Derived(sk, key{}, func() (Rules, error) {
		rules := ParseRules(sk.Manifest.AllowedTools, sk.BaseDir())
		rules.byPath = venvOf(sk)
		return rules, nil
	})
	return rules
}

// Decide decides by the rules, or grants a shell if the policy has one and the rules are
// unscoped.
func (p Policy) Decide(rules Rules, command string) Decision {
	if !p.Shell || !rules.Unscoped() {
		return rules.Decide(command)
	}
	if err := checkText(command); err != nil {
		return Decision{Reason: "the command line is refused: " + err.Error()}
	}
	// Without "--" bash would take a command that begins with - as an option.
	shell := SimpleCommand{Args: []string{"bash", "-c", "--", command}}
	return Decision{
		Allowed: true,
		Reason:  "the policy grants a shell to a skill with an unscoped Bash rule",
		Rule:    "Bash",
		Plan:    Plan{{When: Always, Pipeline: []SimpleCommand{shell}}},
	}
}
