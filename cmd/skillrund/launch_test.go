package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Commands of uv and pipx run the packages that `skillrun prepare` has installed for them, without uv,
// pipx or a network. The rules of allowed-tools judge the line as written.
func TestCommandsOfUV(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "guide", "", map[string]string{
		"scripts/greet.py": "# /// script\n# dependencies = [\"skgreet\"]\n# ///\nimport skgreet, sys\nskgreet.say()\nprint(sys.argv[1:])\n",
		"scripts/base.py":  "import os, skbase, sys\nprint(os.getppid())\nprint(skbase.NAME, sys.prefix)\n",
		"scripts/uv":       "#!/usr/bin/env -S uv run --script\nprint('by its #! line')\n",
	})
	body := `---
name: guide
description: Follows the guide for scripts.
allowed-tools: >-
  Bash(uv run scripts/*) Bash(nice -n 5 timeout -s KILL 60 uv run scripts/*) Bash(uv run --with skbase scripts/*) Bash(uv run --python 3.2 scripts/base.py) Bash(uv run --directory x scripts/base.py)
  Bash(uvx --from skgreet==1.0 skgreet-say) Bash(pipx run skgreet==1.0) Bash(uvx unknown-tool) Bash(uvx skgreet==1.0) Bash(echo:*)
---

` + "```bash\nuv run scripts/greet.py NAME\nuv run --with skbase scripts/base.py\nuvx --from skgreet@1.0 skgreet-say\n```\n"
	if err := os.WriteFile(filepath.Join(dir, "skills/guide/SKILL.md"), []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
	writeSkill(t, dir, "half", "", map[string]string{"scripts/own.py": "print('without a rule')\n"})
	half := "---\nname: half\ndescription: Has a tool that is nowhere.\npython_packages: [skgreet]\n---\n`uvx missing-tool`, `uvx skbase`\n"
	if err := os.WriteFile(filepath.Join(dir, "skills/half/SKILL.md"), []byte(half), 0o644); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, "python: system\nenvironments: {index: \""+packageIndex(t, func() {})+"\"}\n")
	for line, packages := range map[string]string{
		"uv run scripts/greet.py": "skgreet", "uv run --with skbase scripts/base.py": "skbase", "uvx --from skgreet==1.0 skgreet-say": "skgreet==1.0",
	} {
		_, err := d.try(command("guide", line))
		if info := errorInfo(err); info["reason"] != "PACKAGES_MISSING" || info["fix"] != "skillrun prepare guide" || info["packages"] != packages {
			t.Errorf("%s: got %v, %v; want PACKAGES_MISSING", line, err, info)
		}
	}
	stdout, stderr, exit := prepareBy(t, d, "guide")
	if exit != 0 || !strings.Contains(stdout, "guide: prepared") || !strings.Contains(stderr, "tool skgreet==1.0 of SKILL.md:") {
		t.Fatalf("prepare: got %d, %q, %q", exit, stdout, stderr)
	}
	for line, want := range map[string]string{
		"uv run scripts/greet.py a 'b c'":                              "hello from base\n['a', 'b c']\n",
		"nice -n 5 timeout -s KILL 60 uv run scripts/greet.py a":       "hello from base\n['a']\n",
		"echo | uv run scripts/greet.py --with x":                      "hello from base\n['--with', 'x']\n",
		"uvx --from skgreet==1.0 skgreet-say":                          "hello from base\n",
		"echo a && uvx --from skgreet==1.0 skgreet-say":                "a\nhello from base\n",
		"uv run scripts/greet.py x > out && uv run scripts/greet.py y": "hello from base\n['y']\n",
	} {
		if r := d.run(command("guide", line)); r.stdout.String() != want {
			t.Errorf("%s: got %q, %q; want %q", line, r.stdout.String(), r.stderr.String(), want)
		}
	}
	if r := d.run(script("guide", "scripts/uv")); r.stdout.String() != "by its #! line\n" {
		t.Errorf("a #! line of uv: got %q, %q", r.stdout.String(), r.stderr.String())
	}
	until(t, "it is never forked", func() bool {
		r := d.run(command("guide", "uv run --with skbase scripts/base.py"))
		parent, got, _ := strings.Cut(r.stdout.String(), "\n")
		if got != "base /opt/env\n" {
			t.Errorf("with the parent %s got %q, %q", parent, got, r.stderr.String())
		}
		return parent == "0"
	})
	if _, stderr, exit := prepareBy(t, d, "half"); exit == 0 || !strings.Contains(stderr, "tool missing-tool of SKILL.md:6") {
		t.Errorf("prepare of a tool that the index lacks: got %d, %q", exit, stderr)
	}
	if r := d.run(command("half", "uv run scripts/own.py")); r.stdout.String() != "without a rule\n" {
		t.Errorf("a script of a skill without allowed-tools: got %q, %q", r.stdout.String(), r.stderr.String())
	}
	if r := d.run(code("half", "import skgreet; skgreet.say()")); r.stdout.String() != "hello from base\n" {
		t.Errorf("beside a tool that the index lacks: got %q, %q", r.stdout.String(), r.stderr.String())
	}
	for line, reason := range map[string]string{
		"uvx unknown-tool": "PACKAGES_MISSING",
		"pipx run skgreet==1.0 | uv run scripts/greet.py": "INVALID_REQUEST",
		"uv run --python 3.2 scripts/base.py":             "PYTHON_VERSION_UNSUITABLE",
		"uv run --directory x scripts/base.py":            "INVALID_REQUEST",
	} {
		_, err := d.try(command("guide", line))
		if info := errorInfo(err); info["reason"] != reason || reason == "PACKAGES_MISSING" && !strings.Contains(err.Error(), "does not declare unknown-tool") {
			t.Errorf("%s: got %v, %v; want %s", line, err, info, reason)
		}
	}
	_, err := d.try(command("guide", "uvx skgreet==1.0"))
	if info := errorInfo(err); info["reason"] != "REQUIREMENT_INVALID" || !strings.Contains(err.Error(), "it has no program skgreet; its programs, and those of its packages, are: skbase-say, skgreet-say") {
		t.Errorf("a package without a program of its name: got %v", err)
	}
	for _, line := range []string{"uv run sh -c id", "uvx skgreet", "uv run --with skgreet scripts/greet.py"} {
		if _, err := d.try(command("guide", line)); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: got %v, want PERMISSION_DENIED", line, err)
		}
	}
}
