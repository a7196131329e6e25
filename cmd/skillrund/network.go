package main

import (
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/skill"
)

// A networkConfig says which skills get a network, and which rules it has.
type networkConfig struct {
	Allow ruleList `yaml:"allow"`
	Deny  ruleList `yaml:"deny"`
	// Rules of single skills, by name or name@digest, in place of Allow. Deny applies to them, too.
	Skills map[string]networkRules `yaml:"skills"`
	// Of a tenant with this key, only the tenant's own.
	Credentials []credentialConfig `yaml:"credentials"`

	on bool // false: none
}

// networkRules are the rules of one skill: none, or rules.
type networkRules struct {
	Allow ruleList `yaml:"allow"`
	Deny  ruleList `yaml:"deny"`

	on bool
}

// A ruleList is nil if the key is not set. "allow:" without a value is an empty list.
type ruleList []string

func (ruleList) wants() string { return "a list of rules; write [public]" }

// begin reads the word none. It returns false if the keys of the mapping are to be read.
func (c *networkConfig) begin(node *yaml.Node) (done bool) {
	*c = networkConfig{on: node.Kind == yaml.MappingNode}
	return isNone(node)
}

func (r *networkRules) begin(node *yaml.Node) (done bool) {
	*r = networkRules{on: node.Kind == yaml.MappingNode}
	return isNone(node)
}

func isNone(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.Value == policy.Nothing
}

func (*networkConfig) wants() string { return networkWants }
func (*networkRules) wants() string  { return networkWants }

const networkWants = "not a mapping; write none, or {allow: [public]} (docs/network.md)"

// network converts what check has accepted.
func (c *networkConfig) network() permission.Network {
	n := permission.Network{Rules: rulesOf(c.on, c.Allow, c.Deny)}
	for key, rules := range c.Skills {
		if n.Skills == nil {
			n.Skills = map[string]*policy.Rules{}
		}
		n.Skills[key] = rulesOf(rules.on, rules.Allow, slices.Concat(rules.Deny, c.Deny))
	}
	for i := range c.Credentials {
		n.Credentials = append(n.Credentials, c.Credentials[i].binding())
	}
	return n
}

// rulesOf returns nil for none, and for rules with a mistake.
func rulesOf(on bool, allow, deny ruleList) *policy.Rules {
	if !on {
		return nil
	}
	rules, _ := policy.Parse(policy.Config{Allow: allow, Deny: deny})
	return rules
}

// pinned is the key of a skill with a digest.
var pinned = lazyregexp.New(`^[^@]+(@sha256:[0-9a-f]{64})?$`)

// namesSkill reports whether a skill can have the name, alone or with a digest.
func namesSkill(key string) bool {
	full, _, _ := strings.Cut(key, "@")
	return pinned.MatchString(key) && skill.ValidFullName(full)
}

// check reports each text that is not a rule, under its configuration key.
func (c *networkConfig) check(key string, bad badFunc) {
	checkRules(key, c.Allow, c.Deny, bad)
	checkSecrets(join(key, "credentials"), c.Credentials, bad)
	for _, name := range slices.Sorted(maps.Keys(c.Skills)) {
		at := join(key, "skills."+name)
		if !namesSkill(name) {
			bad(at, "%q names no skill; write its full name, or name@sha256: and 64 hex digits", name)
		}
		checkRules(at, c.Skills[name].Allow, c.Skills[name].Deny, bad)
	}
}

// checkRules parses each rule alone, so that each mistake is reported with the line of its rule.
func checkRules(key string, allow, deny ruleList, bad badFunc) {
	for i, rule := range allow {
		if rule == policy.Nothing && len(allow) > 1 {
			bad(index(join(key, "allow"), i), "none is in a list with other rules; write it alone, or remove it")
			continue
		}
		if _, err := policy.Parse(policy.Config{Allow: []string{rule}}); err != nil {
			bad(index(join(key, "allow"), i), "%s", problemOf(err))
		}
	}
	for i, rule := range deny {
		if _, err := policy.Parse(policy.Config{Deny: []string{rule}}); err != nil {
			bad(index(join(key, "deny"), i), "%s", problemOf(err))
		}
	}
}

// emptied returns the keys of a tenant's rules that allow something, but nothing that the daemon's rules
// allow.
func (c *networkConfig) emptied(daemon permission.Network) (keys []string) {
	mine := c.network()
	both := mine.Tighten(daemon)
	if !mine.Rules.AllowsNothing() && both.Rules.AllowsNothing() {
		keys = append(keys, "policy.network.allow")
	}
	for _, name := range slices.Sorted(maps.Keys(mine.Skills)) {
		if !mine.Skills[name].AllowsNothing() && both.Skills[name].AllowsNothing() {
			keys = append(keys, "policy.network.skills."+name)
		}
	}
	return keys
}

// problemOf leaves out the name of the list, which the key has.
func problemOf(err error) string {
	_, text, _ := strings.Cut(err.Error(), ": ")
	return text
}
