package main

import (
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
)

// Configured tenants see the shared skills that shared_skills names, and each has separate quotas.
func TestPushedSkillsOfConfiguredTenants(t *testing.T) {
	t.Parallel()
	shipped, err := filepath.Abs("../../skills")
	if err != nil {
		t.Fatal(err)
	}
	p := startPushing(t, "skills: ["+shipped+`]
tenants:
  acme: {shared_skills: [calculator], quotas: {skill_versions: 1, skill_bytes: 16KiB}}
  globex: {}
`)
	if got := p.names(p.acme); !slices.Equal(got, []string{"calculator"}) {
		t.Errorf("acme sees %v", got)
	}
	if got := p.names(p.other); len(got) < 2 {
		t.Errorf("globex sees %v", got)
	}
	p.wantSays(p.acme, "data-analysis", "SKILL_NOT_FOUND")
	one := p.mustPush(p.acme, "say", "one")
	p.mustPush(p.acme, "say", "two")
	p.wantSays(p.acme, "say@"+one, "DIGEST_MISMATCH")
	p.wantSays(p.acme, "say", "two")
	_, err = p.push(p.acme, pushable("other", "x")...)
	wantReason(t, err, codes.ResourceExhausted, "SKILL_QUOTA_EXCEEDED", "skill bytes")
	p.mustPush(p.other, "other", "x")
}
