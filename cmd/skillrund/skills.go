package main

import (
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/tenant"
)

// skillRules returns what each tenant may see and push. If no tenants are configured, the rules are the
// same for all callers.
func (c *config) skillRules(tenants *tenant.Set) func(string) skill.Rules {
	return func(name string) skill.Rules {
		rules := skill.Rules{
			MaxBytes: int64(c.Snapshots.PushedBytes), MaxVersions: c.Snapshots.PushedVersions,
			Source: func(host string) bool { return matches(c.Snapshots.Sources, host) },
		}
		if tenants.IsSingle() {
			return rules
		}
		t, ok := tenants.Get(name)
		if !ok { // removed a moment ago
			rules.Shared, rules.NoPush = func(string) bool { return false }, true
			return rules
		}
		rules.Shared, rules.MaxBytes, rules.MaxVersions = t.SeesShared, t.SkillBytes, t.SkillVersions
		if daemon := rules.Source; t.SkillSources != nil {
			rules.Source = func(host string) bool { return daemon(host) && matches(t.SkillSources, host) }
		}
		return rules
	}
}

// matches reports whether one of the patterns matches a host, whose case does not matter.
func matches(patterns []string, host string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(host))
		return ok && err == nil
	})
}
