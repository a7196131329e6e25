package permission

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/skill"
)

// A Network says which skills get a network, and what its rules are. The zero Network gives none.
type Network struct {
	// Rules apply to a skill that asks for a network. Nil: such a skill is refused.
	Rules *policy.Rules
	// Skills has the rules of single skills, by name or name@digest. They replace Rules, and give the skill
	// a network even if it does not ask for one.
	Skills map[string]*policy.Rules
	// Credentials are added to requests of skills with a network. The rules must allow the request, too.
	Credentials []credential.Binding
}

// credentials returns the credentials that a skill with these rules may use: with nil rules none. The secret of a domain
// that the rules do not allow is not needed.
func (n Network) credentials(sk *skill.Skill, rules *policy.Rules) (list []credential.Binding) {
	for _, b := range n.Credentials {
		if b.For(sk.Name, sk.Digest) && b.UsableWith(rules) {
			list = append(list, b)
		}
	}
	return list
}

// None reports whether no skill gets a network.
func (n Network) None() bool {
	for _, rules := range n.Skills {
		if !rules.AllowsNothing() {
			return false
		}
	}
	return n.Rules.AllowsNothing()
}

// named returns the rules for a skill: the entry of name@digest, else of name, else n.Rules. own is true
// for an entry.
func (n Network) named(name, digest string) (rules *policy.Rules, own bool) {
	if key := n.entry(name, digest); key != "" {
		return n.Skills[key], true
	}
	return n.Rules, false
}

// entry returns the key of a skill in n.Skills, or "" if none is for the skill.
func (n Network) entry(name, digest string) string {
	if pinned := name + "@" + digest; digest != "" {
		if _, ok := n.Skills[pinned]; ok {
			return pinned
		}
	}
	if _, ok := n.Skills[name]; ok {
		return name
	}
	return ""
}

// allowKey names the list of allow rules for a skill, as in the daemon's configuration and in a tenant's policy.
func (n Network) allowKey(sk *skill.Skill) string {
	if key := n.entry(sk.Name, sk.Digest); key != "" {
		return "network.skills." + key + ".allow"
	}
	return "network.allow"
}

// Tighten returns a Network whose rules allow a destination if both n and by allow it. Each skill that is in the
// Skills of one of them is in the Skills of the result. The credentials come from n.
func (n Network) Tighten(by Network) Network {
	t := Network{Rules: n.Rules.Tighten(by.Rules), Credentials: n.Credentials}
	for _, skills := range []map[string]*policy.Rules{n.Skills, by.Skills} {
		for key := range skills {
			name, digest, _ := strings.Cut(key, "@")
			mine, _ := n.named(name, digest)
			theirs, _ := by.named(name, digest)
			if t.Skills == nil {
				t.Skills = map[string]*policy.Rules{}
			}
			t.Skills[key] = mine.Tighten(theirs)
		}
	}
	return t
}

// NetworkRefused is the refusal of network access.
type NetworkRefused struct {
	Skill  string
	Reason string // one sentence that says what to set
}

func (e *NetworkRefused) Error() string {
	return fmt.Sprintf("network for skill %s refused: %s", excerpt(e.Skill), e.Reason)
}

// A NetworkRequestError says that rules of a request are not rules.
type NetworkRequestError struct {
	List string // "allow" or "deny"
	Err  error  // with all mistakes of the list
}

func (e *NetworkRequestError) Error() string { return e.Err.Error() }

// rules decides about the network of a skill. Nil: the skill runs without one. request has the request's
// rules; nil: the request says nothing about the network.
func (n Network) rules(sk *skill.Skill, request *policy.Config) (*policy.Rules, error) {
	if request != nil && request.Learn {
		return n.learning(sk, *request)
	}
	if request != nil && slices.Equal(request.Allow, []string{policy.Nothing}) {
		return nil, nil
	}
	rules, own := n.named(sk.Name, sk.Digest)
	asks, granted := sk.Manifest.NetworkAccess, !rules.AllowsNothing()
	switch {
	case !asks && !(own && granted) && request == nil:
		return nil, nil
	case !asks && !own:
		return nil, &NetworkRefused{Skill: sk.Name, Reason: "the skill does not ask for it: set `network_access: true` in its SKILL.md, or name the skill under `network.skills` in the daemon's configuration, or leave the network out of the request"}
	case !granted && own:
		return nil, &NetworkRefused{Skill: sk.Name, Reason: "its entry under `network.skills` allows nothing: change the entry in the daemon's configuration, or in `policy.network` of the tenant, or run the skill without a network"}
	case !granted:
		return nil, &NetworkRefused{Skill: sk.Name, Reason: fmt.Sprintf("it is asked for, and the daemon does not grant it: set `network: {allow: [], skills: {%s: {allow: [public]}}}` in the daemon's configuration (a tenant with rules in `policy.network` needs them, too), or run the skill without a network", sk.Name)}
	case request == nil:
		return rules, nil
	}
	return tightened(sk, rules, *request)
}

// learning returns the rules of a request that learns. It needs no network_access of the skill, but only a skill
// that may have a network learns: an operator who gives it none has refused it.
func (n Network) learning(sk *skill.Skill, request policy.Config) (*policy.Rules, error) {
	if len(request.Allow) > 0 {
		return nil, &NetworkRequestError{"learn", errors.New("learning allows every public address; leave out the allow rules")}
	}
	rules, _ := n.named(sk.Name, sk.Digest)
	if rules.AllowsNothing() {
		return nil, &NetworkRefused{Skill: sk.Name, Reason: "the daemon gives the skill no network, so it can't learn: name the skill under `network.skills` in the daemon's configuration, with `{allow: [public]}`"}
	}
	rules, err := rules.Denying(request.Deny)
	if err != nil {
		return nil, &NetworkRequestError{"deny", err}
	}
	return rules.Learning(), nil
}

// tightened returns the rules that a request leaves.
func tightened(sk *skill.Skill, rules *policy.Rules, request policy.Config) (*policy.Rules, error) {
	rules, err := rules.Denying(request.Deny)
	if err != nil {
		return nil, &NetworkRequestError{"deny", err}
	}
	if len(request.Allow) == 0 {
		return rules, nil
	}
	by, err := policy.Parse(policy.Config{Allow: request.Allow})
	if err != nil {
		return nil, &NetworkRequestError{"allow", err}
	}
	both := rules.Tighten(by)
	if both.AllowsNothing() {
		allow, _ := rules.Strings()
		return nil, &NetworkRefused{Skill: sk.Name, Reason: fmt.Sprintf("the request's rules, %.200q, allow no destination that the granted rules allow; the granted rules are %s", strings.Join(request.Allow, ", "), strings.Join(allow, ", "))}
	}
	return both, nil
}
