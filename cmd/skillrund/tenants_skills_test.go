package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// skillsOf returns the names of the skills that a caller sees.
func (d *running) skillsOf(ctx context.Context) (names []string) {
	d.t.Helper()
	r, err := d.skills.ListSkills(ctx, &pb.ListSkillsRequest{})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, s := range r.Skills {
		names = append(names, s.Name)
	}
	return names
}

// Only the tenant whose configuration names a folder sees and runs the folder's skills. They come, move and
// go with the file of the tenant and with their own content.
func TestTenantSkills(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	manifest := func(name string) string { return "---\nname: " + name + "\ndescription: Prints.\n---\n" }
	write("acme/secret/SKILL.md", manifest("secret"))
	write("acme/secret/scripts/say.sh", "echo of acme\n")
	write("acme/broken/x", "")
	write("other/one/SKILL.md", manifest("one"))
	write("tenants/acme.yaml", "skills: [../acme]\nshared_skills: [calculator]\n")
	write("tenants/globex.yaml", "shared_skills: [calculator]\n")
	d := startDaemonIn(t, dir, withTokens+"tenants_dir: tenants\ntenants: {default: {}}\n")
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	acme, globex := d.asTenant(ctx, "acme", "invoke"), d.asTenant(ctx, "globex", "invoke")

	sees := func(want ...string) func() bool {
		return func() bool { return slices.Equal(d.skillsOf(acme), want) }
	}
	if !sees("calculator", "secret")() {
		t.Errorf("acme sees %q", d.skillsOf(acme))
	}
	s, err := d.runs.Execute(acme, script("secret", "scripts/say.sh"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := collect(t, s, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wantStdout(t, "of acme\n")
	for name, other := range map[string]context.Context{"globex": globex, "an operator": ctx} {
		if got := d.skillsOf(other); slices.Contains(got, "secret") {
			t.Errorf("%s sees %q", name, got)
		}
		_, err := d.skills.GetSkill(other, &pb.GetSkillRequest{Skill: "secret"})
		wantReason(t, err, codes.NotFound, "SKILL_NOT_FOUND", "")
	}

	// A folder that did not load: its tenant gets its name, an operator its path, another tenant nothing.
	problems := func(ctx context.Context) []*pb.SkillProblem {
		r, err := d.system.GetCapabilities(ctx, &pb.GetCapabilitiesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.SkillProblems
	}
	if p := problems(acme); len(p) != 1 || p[0].Folder != "broken" || p[0].Tenant != "" {
		t.Errorf("acme gets %v", p)
	}
	if p := problems(ctx); len(p) != 1 || p[0].Folder != filepath.Join(dir, "acme/broken") || p[0].Tenant != "acme" {
		t.Errorf("an operator gets %v", p)
	}
	if p := problems(globex); len(p) != 0 {
		t.Errorf("globex gets %v", p)
	}

	write("acme/second/SKILL.md", manifest("second"))
	until(t, "a new folder", sees("calculator", "second", "secret"))
	d.write("tenants/acme.yaml", "skills: [{path: ../other, namespace: team}]\nshared_skills: [calculator]\n")
	until(t, "another folder", sees("calculator", "team/one"))
	write("other/two/SKILL.md", manifest("two"))
	until(t, "a new skill in the other folder", sees("calculator", "team/one", "team/two"))

	// The folder of another tenant is a mistake that names both.
	d.write("tenants/globex.yaml", "skills: [../other/one]\n")
	want := "skills[0]: " + filepath.Join(dir, "other/one") + " shares files with skills[0] of tenant acme, " + filepath.Join(dir, "other")
	until(t, "the same folder", func() bool {
		r, err := d.system.GetCapabilities(ctx, &pb.GetCapabilitiesRequest{})
		return err == nil && len(r.TenantProblems) == 1 && strings.Contains(r.TenantProblems[0].Reason, want)
	})
	if got := d.skillsOf(globex); !slices.Equal(got, []string{"calculator"}) {
		t.Errorf("globex sees %q", got)
	}
	// Handed over: the file of globex is right as soon as acme gives the folder up.
	d.write("tenants/acme.yaml", "shared_skills: [calculator]\n")
	until(t, "the folder of globex", func() bool { return slices.Contains(d.skillsOf(globex), "one") })
	if !sees("calculator")() {
		t.Errorf("acme still sees %q", d.skillsOf(acme))
	}
}

// A tenant may push skills from hosts that both the daemon and its own policy allow. Without the key, the daemon's hosts
// count.
func TestSourcesOfATenant(t *testing.T) {
	path := writeTenants(t, "tenants_dir: t\nsnapshots: {sources: ['*.example.com']}\n", map[string]string{
		"free.yaml": "", "narrow.yaml": "policy: {skill_sources: [A.example.com, other.org]}\n", "none.yaml": "policy: {skill_sources: []}\n",
	})
	c, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	rules := c.skillRules(c.tenantSet())
	for tenant, want := range map[string]string{"free": "a.example.com b.example.com", "narrow": "a.example.com", "none": ""} {
		var got []string
		for _, host := range []string{"a.example.com", "b.example.com", "other.org"} {
			if rules(tenant).Source(host) {
				got = append(got, host)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s may have skills from %q, want %q", tenant, got, want)
		}
	}
}
