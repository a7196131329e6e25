package permission

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

func withTools(tools ...string) *skill.Skill {
	return &skill.Skill{Name: "demo", Manifest: manifest.Manifest{AllowedTools: tools, HasAllowedTools: true}}
}

var who = Principal{Tenant: "default", Name: "me"}

func TestCheckCommand(t *testing.T) {
	sk := withTools("Bash(git status:*)", "Bash(python {baseDir}/x.py:*)")
	src := Source{Kind: Command, Command: "git status && python {baseDir}/x.py"}
	g, err := Policy{}.Check(who, sk, src, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !g.Valid() || g.Skill() != sk || g.Source() != src || g.Principal() != who || g.Network() != nil {
		t.Errorf("grant %+v", g)
	}
	want := [][]string{{"git", "status"}, {"python", "/skills/demo/x.py"}}
	if got := g.Plan().Commands(); !reflect.DeepEqual(got, want) {
		t.Errorf("plan %q, want %q", got, want)
	}

	g, err = Policy{}.Check(who, sk, Source{Kind: Command, Command: "git push"}, nil)
	var denied *Denied
	if !errors.As(err, &denied) || g.Valid() || g.Skill() != nil || g.Plan() != nil {
		t.Fatalf("git push: grant %+v, error %v", g, err)
	}
	if want := "Command not allowed by skill permissions: git push"; denied.Message() != want {
		t.Errorf("message %q, want %q", denied.Message(), want)
	}
	if denied.Rule != "Bash(git push:*)" || !strings.Contains(denied.Reason, "'git push'") || !strings.Contains(denied.Error(), denied.Reason) {
		t.Errorf("denied %+v: %v", denied, denied)
	}
}

func TestCheckCommandWithoutAllowedTools(t *testing.T) {
	sk := &skill.Skill{Name: "demo", Manifest: manifest.Manifest{AllowedTools: []string{"Bash"}}} // HasAllowedTools is not set
	_, err := Policy{Shell: true}.Check(who, sk, Source{Kind: Command, Command: "ls"}, nil)
	var denied *Denied
	if !errors.As(err, &denied) || !strings.Contains(denied.Reason, "no allowed-tools") || !strings.Contains(denied.Reason, "SKILL.md") {
		t.Errorf("no allowed-tools: %v", err)
	}
	if g, err := (Policy{}).Check(who, sk, Source{Kind: Code, Code: "1"}, nil); err != nil || !g.Valid() {
		t.Errorf("code without allowed-tools: %v", err)
	}
	_, err = Policy{}.Check(who, withTools(), Source{Kind: Command, Command: "ls"}, nil)
	if !errors.As(err, &denied) {
		t.Errorf("empty allowed-tools: %v", err)
	}
}

func TestCheckSources(t *testing.T) {
	sk := withTools("Read")
	if g, err := (Policy{}).Check(who, sk, Source{Kind: Code, Code: "print(1)", Language: "python"}, nil); err != nil || !g.Valid() || g.Plan() != nil {
		t.Errorf("code: %+v, %v", g, err)
	}
	var denied *Denied
	if _, err := (Policy{NoCode: true}).Check(who, sk, Source{Kind: Code, Code: "print(1)"}, nil); !errors.As(err, &denied) {
		t.Errorf("code with NoCode: %v", err)
	}
	if _, err := (Policy{}).Check(who, sk, Source{}, nil); !errors.As(err, &denied) {
		t.Errorf("no source: %v", err)
	}
	if _, err := (Policy{}).Check(who, sk, Source{Kind: 99}, nil); !errors.As(err, &denied) {
		t.Errorf("unknown kind: %v", err)
	}
	if g, err := (Policy{}).Check(who, nil, Source{Kind: Code}, nil); err == nil || g.Valid() {
		t.Errorf("no skill: %+v", g)
	}
	var zero Grant
	if zero.Valid() || zero.Skill() != nil || zero.Plan() != nil || zero.Network() != nil {
		t.Errorf("the zero grant: %+v", zero)
	}
}

func TestShell(t *testing.T) {
	line := "-x; cd /tmp && ls $(id) *"
	for _, c := range []struct {
		what   string
		policy Policy
		tools  string
		line   string
		shell  bool
	}{
		{"granted", Policy{Shell: true}, "Bash", line, true},
		{"granted, other rules too", Policy{Shell: true}, "Read, Bash(*)", line, true},
		{"no policy", Policy{}, "Bash", line, false},
		{"scoped rule", Policy{Shell: true}, "Bash(ls:*)", line, false},
		{"NUL", Policy{Shell: true}, "Bash", "ls \x00", false},
		{"carriage return", Policy{Shell: true}, "Bash", "ls \r\n", false},
		{"too long", Policy{Shell: true}, "Bash", strings.Repeat("a", MaxCommand+1), false},
	} {
		g, err := c.policy.Check(who, withTools(c.tools), Source{Kind: Command, Command: c.line}, nil)
		if (err == nil) != c.shell {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if want := [][]string{{"bash", "-c", "--", line}}; c.shell && !reflect.DeepEqual(g.Plan().Commands(), want) {
			t.Errorf("%s: plan %q, want %q", c.what, g.Plan().Commands(), want)
		}
	}
	// The policy's shell does not affect a skill with scoped rules.
	if d := (Policy{Shell: true}).DecideFor(withTools("Bash(ls:*)"), "ls"); d.Rule != "Bash(ls:*)" {
		t.Errorf("scoped: %+v", d)
	}
}
