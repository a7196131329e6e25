package permission

import (
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/network/policy"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

// Files of a session, and which programs may not see them. A program with rights that another skill may not
// have (a network, secret variables) sees fewer.
func TestHides(t *testing.T) {
	sk := skilltest.Load(t, map[string]string{"scripts/x.py": "1", "main.py": "1", "run": "#!/bin/sh\n", "a.js": "1", "lib/own.py": "1"})
	script := func(name string) Source { return Source{Kind: Script, Script: name} }
	code := Source{Kind: Code, Code: "1"}
	command := func(line string) Source { return Source{Kind: Command, Command: line} }
	for _, c := range []struct {
		source       Source
		dir          string
		hidden, seen string // files, with a space after each
		more         string // that are also hidden from a program with a network or a secret
	}{
		{
			source: script("scripts/x.py"),
			hidden: "scripts/requests.py scripts/requests/__init__.py scripts/in.csv csv.py json/__init__.py x.so package.json " +
				"node_modules/x/index.js sub/node_modules/x/data.txt scripts/__pycache__/x.cpython-311.pyc lib/extra.py lib/deep/y.so .Rprofile .RData PKG_ADD mean.m",
			seen: "in.csv data/in.csv Makefile pyproject.toml my-site/app.py src/app.js google/x.txt",
			more: "src/app.py google/auth.py google/auth/__init__.py .git/config repo/.git/hooks/post-checkout HEAD",
		},
		{source: script("main.py"), hidden: "google/auth.py csv.py src/app.py", seen: "my-site/app.py src/app.js in.csv", more: ".git/config"},
		{source: script("run"), hidden: "google/auth.py", seen: "in.csv"},
		{source: script("a.js"), hidden: "b.js node_modules/x/index.js package.json", seen: "google/auth.js x.json", more: "google/auth.py"},
		{
			source: script("scripts/x.py"), dir: "work/deep",
			hidden: "work/deep/csv.py work/csv.js work/deep/json/__init__.py work/package.json", seen: "work/deep/in.csv other/csv.js", more: "work/deep/google/auth.py",
		},
		{source: script("scripts/x.py"), dir: "my-work", seen: "my-work/google/in.csv", more: "my-work/google/auth.py"},
		{source: code, seen: "in.csv my-site/app.py", more: "csv.py helper/__init__.py scripts/x2.py package.json Makefile google/auth.py .git/config"},
		{source: command("python scripts/x.py"), hidden: "scripts/y.py csv.py", seen: "in.csv", more: "src/app.py"},
		{source: command("python {baseDir}/scripts/x.py"), hidden: "csv.py Makefile", seen: "in.csv"},
		{source: command("timeout 5 python3 -m http.server"), hidden: "http/__init__.py csv.py http/server.py", seen: "in.csv"},
		{source: command("python mine.py"), seen: "in.csv", more: "mine.py csv.py"},
		{source: command("make all"), seen: "in.csv", more: "Makefile"},
	} {
		for _, rights := range []string{"", "network", "secret"} {
			var allowed Policy
			if rights == "network" {
				rules, err := policy.Parse(policy.Config{Allow: []string{"example.com"}})
				if err != nil {
					t.Fatal(err)
				}
				allowed.Network.Skills = map[string]*policy.Rules{sk.Name: rules}
			}
			sk.Manifest.HasAllowedTools, sk.Manifest.AllowedTools = true, []string{"Bash"}
			g, err := allowed.Check(who, sk, c.source, nil)
			if err != nil {
				t.Fatal(err)
			}
			hides := g.Hides(c.dir, rights == "secret")
			for files, want := range map[string]bool{c.hidden: true, c.seen: false, c.more: rights != ""} {
				for name := range strings.FieldsSeq(files) {
					if got := hides(name); (got != "") != want {
						t.Errorf("%v in %q with %q: %s: %q", c.source, c.dir, rights, name, got)
					}
				}
			}
		}
	}
}
