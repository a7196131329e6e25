package executor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/environment"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill/skilltest/folder"
	"github.com/skillrun/skillrun/sandbox"
)

// An execution whose skill needs a package that is not there is refused before it
// is recorded; one that needs none runs.
func TestMissingPackagesAreSaidBefore(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "skills/needy")
	if err := os.MkdirAll(filepath.Join(root, "scripts"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"SKILL.md":      "---\nname: needy\ndescription: A skill.\npython_packages: [no-such-package==1.0]\n---\n",
		"scripts/go.py": "print(1)",
		"scripts/go.sh": "echo 1",
		"scripts/tool":  "#!/usr/bin/env python3\nprint(1)\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Only one script declares the package.
	scripted := filepath.Join(dir, "skills/scripted")
	if err := errors.Join(
		os.MkdirAll(scripted, 0o755), os.WriteFile(filepath.Join(scripted, "SKILL.md"), []byte("---\nname: scripted\ndescription: A skill.\n---\n"), 0o644),
		os.WriteFile(filepath.Join(scripted, "go.py"), []byte("# /// script\n# dependencies = [\"no-such-package\"]\n# ///\n"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	f := newFake()
	x := newExecutor(t, dir, f.runs)
	var err error
	if x.Environments, err = environment.Open(environment.Config{Dir: filepath.Join(dir, "environments")}); err != nil {
		t.Fatal(err)
	}
	request := func(skill, script string) Request {
		return Request{Principal: who, Skill: skill, Source: permission.Source{Kind: permission.Script, Script: script}}
	}
	_, _, err = x.Execute(t.Context(), request("needy", "scripts/go.py"))
	if missing, ok := errors.AsType[*environment.PackagesError](err); !ok || len(missing.Packages) != 1 || missing.Skill != "needy" {
		t.Errorf("got %v (%T), want what is missing", err, err)
	}
	if list, _, err := x.List(t.Context(), who, Filter{PageSize: 10}); err != nil || len(list) > 0 {
		t.Errorf("recorded: %+v, %v", list, err)
	}
	for name, want := range map[string]bool{"needy": false, "scripted": false, "demo": true} {
		sk, err := x.Skills.Resolve(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := x.HasPackages(who, sk); got != want {
			t.Errorf("%s has its packages: got %t, want %t", name, got, want)
		}
	}
	sk, err := x.Skills.Resolve("needy")
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"python3 scripts/go.py x": "scripts/go.py x", "scripts/go.py x": "scripts/go.py x", "./scripts/go.py": "./scripts/go.py",
		"scripts/tool": "scripts/tool", "timeout 5 python3 scripts/go.py": "scripts/go.py", "env A=b ./scripts/tool": "./scripts/tool",
		sk.BaseDir() + "/scripts/go.py": sk.BaseDir() + "/scripts/go.py",
		"scripts/go.sh":                 "none", "cat scripts/go.py": "none", "bash scripts/go.sh": "none",
	} {
		rest, ok := pythonArgs(sk, strings.Fields(command))
		if got := strings.Join(rest, " "); ok && got != want || ok != (want != "none") {
			t.Errorf("%s: got %q, %t; want %q", command, got, ok, want)
		}
	}
	f.exit <- sandbox.Exit{End: sandbox.Exited}
	events := follow(t, x, execute(t, x, request("demo", "scripts/go.py")))
	if got := events[len(events)-1].Outcome; got.End != Exited {
		t.Errorf("got %+v", got)
	}
}

// Prepare says which command line of SKILL.md it leaves out.
func TestPrepareSaysWhatItLeavesOut(t *testing.T) {
	dir := t.TempDir()
	folder.Files{"skills/example/SKILL.md": "---\nname: example\ndescription: d\n---\n\n`uvx PACKAGE`\n"}.Write(t, dir)
	x := newExecutor(t, dir, newFake().runs)
	var err error
	if x.Environments, err = environment.Open(environment.Config{Dir: filepath.Join(dir, "environments")}); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	made, err := x.Prepare(t.Context(), who, "example", false, func(p []byte) error { log.Write(p); return nil })
	if err != nil || len(made) > 0 || log.String() != "warning: SKILL.md:6: PACKAGE stands for the name of a package: skillrun prepare leaves this command out\n" {
		t.Errorf("got %+v, %v, %q", made, err, log.String())
	}
	full := errors.New("full")
	if _, err := x.Prepare(t.Context(), who, "example", false, func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("a caller that is gone: %v", err)
	}
}

// Prepare goes on with Node packages and tools after an error, and returns the first one.
func TestPrepareGoesOn(t *testing.T) {
	dir := t.TempDir()
	folder.Files{
		"skills/lines/SKILL.md": "---\nname: lines\ndescription: d\n---\n\n`npx one`, `npx two@1`, `uvx three`\n",
		"skills/web/SKILL.md":   "---\nname: web\ndescription: d\n---\n", "skills/web/package.json": `{"dependencies": {"left": "1"}}`,
		"skills/bad/SKILL.md": "---\nname: bad\ndescription: d\n---\n", "skills/bad/package.json": `{"dependencies": {"left": "file:.."}}`,
	}.Write(t, dir)
	x := newExecutor(t, dir, newFake().runs)
	prepare := func(c environment.Config, name string) (string, error) {
		var err error
		c.Dir = filepath.Join(t.TempDir(), "environments")
		if x.Environments, err = environment.Open(c); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		_, err = x.Prepare(t.Context(), who, name, false, func(p []byte) error { log.Write(p); return nil })
		return log.String(), err
	}
	// A registry, and a machine without npm.
	bare := environment.Config{Registry: "https://registry.example/", Rootfs: t.TempDir()}
	const python, node = "tool three of SKILL.md:6\n", "tool one of SKILL.md:6\ntool two@1 of SKILL.md:6\n"
	if log, err := prepare(bare, "lines"); log != python+node || !errors.Is(err, environment.ErrNoSource) || !strings.HasPrefix(err.Error(), "tool three of SKILL.md:6: ") {
		t.Errorf("without npm: got %q, %v", log, err)
	}
	if log, err := prepare(environment.Config{}, "lines"); !strings.HasPrefix(log, python+"2 commands of npx in SKILL.md are not prepared: ") || !errors.Is(err, environment.ErrNoSource) {
		t.Errorf("without a registry: got %q, %v", log, err)
	}
	if log, err := prepare(bare, "web"); log != "Node packages of package.json\n" || !errors.Is(err, environment.ErrNoNpm) {
		t.Errorf("Node packages without npm: got %q, %v", log, err)
	}
	var refused *RequirementError
	if _, err := prepare(bare, "bad"); !errors.As(err, &refused) || refused.File != "package.json" {
		t.Errorf("a file as a version: got %v, want a *RequirementError", err)
	}
	x.Runtimes = &runtime.Set{}
	var missing *MissingInterpreterError
	if _, err := prepare(bare, "web"); !errors.As(err, &missing) || missing.Interpreter != "node" {
		t.Errorf("without Node.js: got %v, want a *MissingInterpreterError", err)
	}
}
