package manifest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const nodeFront = "---\nname: demo\ndescription: Shows things.\n---\n"

// The packages of a package.json are read, and only what names a package of a registry.
func TestNodePackagesOfAManifest(t *testing.T) {
	const text = "\ufeff" + `{"name": "x", "scripts": {"postinstall": "id"}, "dependencies": {"b": "^1", "@s/a": "1 - 2 || >=3.0.0-rc.1"}, "devDependencies": {"c": "npm:other@~2"}, "optionalDependencies": {"d": "latest"},
		"overrides": {"e": {".": "1", "f": "$b"}}}`
	needs, found := readSkill(t, files{"SKILL.md": nodeFront, "package.json": text, "scripts/package.json": `{"dependencies": {"z": "1"}}`})
	want := `{"dependencies":{"@s/a":"1 - 2 || \u003e=3.0.0-rc.1","b":"^1"},"devDependencies":{"c":"npm:other@~2"},"optionalDependencies":{"d":"latest"},"overrides":{"e":{".":"1","f":"$b"}}}`
	if got := needs.Node; string(got.Manifest) != want || got.File != "package.json" || !slices.Equal(got.Packages, []string{"@s/a", "b"}) || got.Problem.Reason != "" {
		t.Errorf("got %+v, %s\nwant %s", got, got.Manifest, want)
	}
	if got := rulesOf(found); !slices.Equal(got, []string{"node-lock-missing package.json", "node-packages scripts/package.json"}) {
		t.Errorf("got %q", got)
	}
	needs, found = readSkill(t, files{"SKILL.md": nodeFront, "package.json": `{"type": "module"}`, "scripts/package.json": `{"dependencies": {"z": "1"}}`, "scripts/package-lock.json": lock(`"node_modules/z": ` + locked)})
	if got := needs.Node; got.File != "scripts/package.json" || got.Lock != "scripts/package-lock.json" || len(found) > 0 {
		t.Errorf("got %+v, %v; want that of scripts", got, found)
	}
	needs, found = readSkill(t, files{"SKILL.md": nodeFront, "package.json": `{"name": "none"}`})
	if needs.Node.File != "" || len(found) > 0 {
		t.Errorf("without packages: got %+v, %v", needs.Node, found)
	}
}

// npm does not install an optional peer, so the build must know which peers are optional.
func TestOptionalPeers(t *testing.T) {
	const text = `{"dependencies": {"z": "1"}, "peerDependencies": {"a": "1", "b": "1", "c": "1", "d": "1"}, "peerDependenciesMeta": {
		"a": {"optional": true, "more": {}}, "b": {"optional": false}, "c": {"Optional": true}, "d": true, "e": {"optional": true}}}`
	needs, _ := readSkill(t, files{"SKILL.md": nodeFront, "package.json": text})
	want := `{"dependencies":{"z":"1"},"peerDependencies":{"a":"1","b":"1","c":"1","d":"1"},"peerDependenciesMeta":{"a":{"optional":true},"b":{"optional":false}}}`
	if got := needs.Node; string(got.Manifest) != want || got.Problem.Reason != "" {
		t.Errorf("got %+v, %s\nwant %s", got, got.Manifest, want)
	}
	for _, meta := range []string{"null", "[]", `"a"`, "{}"} {
		needs, _ := readSkill(t, files{"SKILL.md": nodeFront, "package.json": `{"peerDependencies": {"a": "1"}, "peerDependenciesMeta": ` + meta + `}`})
		if got := needs.Node; string(got.Manifest) != `{"peerDependencies":{"a":"1"}}` || got.Problem.Reason != "" {
			t.Errorf("%s: got %+v, %s", meta, got, got.Manifest)
		}
	}
}

// Packages whose installation runs a script are named: the daemon does not run it by default.
func TestNodeInstallScripts(t *testing.T) {
	runs := strings.Replace(locked, "{", `{"hasInstallScript": true, "HasInstallScript": false, `, 1)
	own := lock(`"node_modules/z": ` + runs + `, "node_modules/b/node_modules/z": ` + runs)
	needs, found := readSkill(t, files{"SKILL.md": nodeFront, "package.json": `{"dependencies": {"z": "1"}}`, "package-lock.json": own})
	if needs.Node.Problem.Reason != "" || len(found) != 1 || found[0].Rule != RuleNodeScripts || found[0].File != "package-lock.json" || !strings.Contains(found[0].Message, "installs them: z; ") {
		t.Errorf("got %+v, %v", needs.Node, found)
	}
}

// npm's locks count, the shrinkwrap first. The lock of another program is named, and does not count.
func TestNodeLocks(t *testing.T) {
	const text = `{"dependencies": {"z": "1"}}`
	own := lock(`"node_modules/z": ` + locked)
	for name, tt := range map[string]struct {
		files          files
		counts, unread string
		finding        string
	}{
		"both of npm":    {files{"npm-shrinkwrap.json": own, "package-lock.json": "{"}, "npm-shrinkwrap.json", "", ""},
		"npm and others": {files{"package-lock.json": own, "yarn.lock": "", "bun.lockb": ""}, "package-lock.json", "", ""},
		"pnpm":           {files{"pnpm-lock.yaml": "lockfileVersion: 9"}, "", "pnpm-lock.yaml", "the versions in pnpm-lock.yaml do not count: npm, "},
		"yarn":           {files{"yarn.lock": "# yarn"}, "", "yarn.lock", "the versions in yarn.lock do not count: npm, "},
		"bun":            {files{"bun.lock": "{}"}, "", "bun.lock", "the versions in bun.lock do not count: npm, "},
		"bun, binary":    {files{"bun.lockb": "\x00"}, "", "bun.lockb", "the versions in bun.lockb do not count: npm, "},
		"none":           {files{"sub/yarn.lock": ""}, "", "", "it has no package-lock.json"},
	} {
		tt.files["SKILL.md"], tt.files["package.json"] = nodeFront, text
		needs, found := readSkill(t, tt.files)
		if got := needs.Node; got.Lock != tt.counts || got.Unread != tt.unread || got.Problem.Reason != "" {
			t.Errorf("%s: got %+v", name, got)
		}
		if tt.finding == "" != (len(found) == 0) || len(found) > 0 && (found[0].Rule != RuleNodeLock || found[0].File != "package.json" || !strings.HasPrefix(found[0].Message, tt.finding)) {
			t.Errorf("%s: got %v, want %q", name, found, tt.finding)
		}
	}
	needs, _ := readSkill(t, files{"SKILL.md": nodeFront, "scripts/package.json": text, "scripts/pnpm-lock.yaml": "", "yarn.lock": ""})
	if needs.Node.Unread != "scripts/pnpm-lock.yaml" {
		t.Errorf("in scripts: got %q", needs.Node.Unread)
	}
}

func rulesOf(list []Finding) (rules []string) {
	for _, f := range list {
		rules = append(rules, f.Rule+" "+f.File)
	}
	return rules
}

// A package.json that names another source than a registry can't be prepared, with the reason.
func TestNodePackagesFromElsewhere(t *testing.T) {
	spec := func(name, version string) string {
		text, _ := json.Marshal(map[string]any{"dependencies": map[string]string{name: version}})
		return string(text)
	}
	for text, want := range map[string]string{
		spec("a", "file:../other"):                       "is no version",
		spec("a", "git+ssh://git@evil.example/x.git"):    "is no version",
		spec("a", "https://evil.example/x.tgz"):          "is no version",
		spec("a", "user/repository"):                     "is no version",
		spec("a", "github:user/repository"):              "is no version",
		spec("a", "link:x"):                              "is no version",
		spec("a", "workspace:*"):                         "is no version",
		spec("a", "../x"):                                "is no version",
		spec("a", "npm:../x@1"):                          "is no version",
		spec("a", "npm:.x@1"):                            "not a valid name",
		spec("a", "npm:b@file:x"):                        "is no version",
		spec("a", "."):                                   "is no version",
		spec("a", ".."):                                  "is no version",
		spec("a", " .5"):                                 "is no version",
		spec("a", ".foo"):                                `package "a": ".foo" is no version; packages come from the daemon's sources only: write a version, such as ^1.2.0, or `,
		spec("a", "x.tgz"):                               "is no version",
		spec("a", "1 || x.TAR.GZ "):                      "is no version",
		spec("a", "x.tar"):                               "is no version",
		spec("a", "npm:b@.."):                            `package "b": ".." is no version`,
		spec("a", strings.Repeat("1", 300)):              "is no version",
		spec("../a", "1"):                                "not a valid name",
		spec("@a/../b", "1"):                             "not a valid name",
		spec("a/b", "1"):                                 "not a valid name",
		spec("node_modules", "1"):                        "not a valid name",
		spec(".bin", "1"):                                "not a valid name",
		spec("a\nb", "1"):                                "not a valid name",
		spec(strings.Repeat("a", 215), "1"):              "not a valid name",
		`{"dependencies": ["a"]}`:                        "not a mapping",
		`{"dependencies": {"a": 1}}`:                     "not a mapping",
		`["a"]`:                                          "not a JSON object",
		`{"dependencies": {"a": "1"}, "workspaces": []}`: "workspaces",
		`{"dependencies": {"a": "1"}, "overrides": {"b": "file:x"}}`:       "overrides",
		`{"dependencies": {"a": "1"}, "overrides": {"b": {"c": ["1"]}}}`:   "overrides",
		`{"devDependencies": {"a": "git://evil.example/x"}}`:               "devDependencies",
		`{"optionalDependencies": {"a": "http://evil.example/x.tgz"}}`:     "optionalDependencies",
		`{"dependencies": {"a": "1"}, "peerDependencies": {"b": "./x"}}`:   "peerDependencies",
		`{"dependencies": {"a": "1"}, "x": "` + strings.Repeat("x", 1<<20): "bytes long",
	} {
		needs, found := readSkill(t, files{"SKILL.md": nodeFront, "package.json": text})
		if got := needs.Node.Problem; !strings.Contains(got.Reason, want) || got.File != "package.json" || len(found) != 1 || found[0].Rule != RuleNodePackages || found[0].Severity != SeverityWarning {
			t.Errorf("%.100s: got %+v, %v; want %q", text, got, found, want)
		}
	}
	needs, _ := readSkill(t, files{"SKILL.md": nodeFront, "package.json": `{"dependencies": {"b": "file:x", "a": "1", "../c": "1"}}`})
	if got, want := needs.Node.Packages, []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("packages %q, want %q", got, want)
	}
}

const locked = `{"version": "1.0.0", "resolved": "https://registry.npmjs.org/z/-/z-1.0.0.tgz", "integrity": "sha512-AAAA=="}`

// lock is a package-lock.json with these entries.
func lock(entries string) string {
	return `{"lockfileVersion": 3, "packages": {"": {"dependencies": {"z": "1"}}, ` + entries + `}}`
}

// A lock says which versions there are and their hashes, never where they come from.
func TestNodeLock(t *testing.T) {
	clean, err := NodeLock([]byte(lock(`"node_modules/z": {"version": "1.0.0", "resolved": "https://elsewhere.example/npm/z/-/z-1.0.0.tgz", "integrity": "sha512-AAAA==", "evil": 1, "bin": {"z": "z.js"}, "bundleDependencies": ["@s/y"]},
		"node_modules/z/node_modules/@s/y/node_modules/x": {"version": "1.0.0", "inBundle": true}, "node_modules/z/node_modules/@s/y": {"version": "1.0.0", "inBundle": true}`)), []byte(`{"dependencies":{"z":"1"}}`))
	const want = `{"lockfileVersion":3,"name":"skill","packages":{"":{"dependencies":{"z":"1"}},"node_modules/z":{"bin":{"z":"z.js"},"bundleDependencies":["@s/y"],"integrity":"sha512-AAAA==","version":"1.0.0"},"node_modules/z/node_modules/@s/y":{"inBundle":true,"version":"1.0.0"},"node_modules/z/node_modules/@s/y/node_modules/x":{"inBundle":true,"version":"1.0.0"}},"requires":true}`
	if err != nil || string(clean) != want {
		t.Errorf("got %s, %v\nwant %s", clean, err, want)
	}
	for entries, reason := range map[string]string{
		`"node_modules/z": {"version": "1.0.0", "resolved": "https://evil.example/x.tgz", "integrity": "sha512-AAAA=="}`:           "takes",
		`"node_modules/z": {"version": "1.0.0", "resolved": "https://evil.example/y/-/y-1.0.0.tgz", "integrity": "sha512-AAAA=="}`: "takes",
		`"node_modules/z": {"version": "1.0.0", "resolved": "git+ssh://git@evil.example/z/-/z.tgz", "integrity": "sha512-AAAA=="}`: "takes",
		`"node_modules/z": {"version": "1.0.0", "resolved": "file:///z/-/z.tgz", "integrity": "sha512-AAAA=="}`:                    "takes",
		`"node_modules/z": {"version": "file:../z", "integrity": "sha512-AAAA=="}`:                                                 "no version",
		`"node_modules/z": {"version": "1.0.0", "resolved": "https://registry.npmjs.org/z/-/z-1.0.0.tgz"}`:                         "no integrity",
		`"node_modules/z": {"version": "1.0.0", "integrity": "md5-AAAA"}`:                                                          "no integrity",
		`"node_modules/z": {"resolved": "../z", "link": true}`:                                                                     "no version",
		`"node_modules/z": {"version": "..", "integrity": "sha512-AAAA=="}`:                                                        "no version of a package in a registry; write a version into package.json",
		`"node_modules/z": {"version": "z.tgz", "integrity": "sha512-AAAA=="}`:                                                     "no version",
		`"../z": {"version": "1.0.0"}`:                            "no package of a registry",
		`"node_modules/../z": {"version": "1.0.0"}`:               "no package of a registry",
		`"packages/z": {"version": "1.0.0"}`:                      "no package of a registry",
		`"node_modules/a/b/node_modules/z": {"version": "1.0.0"}`: "no package of a registry",
		// npm knows the exact names of the fields only.
		`"node_modules/z": {"version": "1.0.0", "Integrity": "sha512-AAAA=="}`:                                                            "no integrity",
		`"node_modules/z": {"version": "file:../z", "verſion": "1.0.0", "integrity": "sha512-AAAA=="}`:                                    "no version",
		`"node_modules/z": {"version": "1.0.0", "inBundle": true}`:                                                                        "no integrity",
		`"node_modules/z": ` + locked + `, "node_modules/z/node_modules/y": {"version": "1.0.0", "inBundle": true}`:                       "no integrity",
		`"node_modules/z": {"version": "1.0.0", "inBundle": true, "bundleDependencies": ["y"]}`:                                           "no integrity",
		`"` + strings.Repeat("node_modules/z/", 300) + `node_modules/z": ` + locked:                                                       "a path of",
		`"node_modules/z": {"version": 1}`:                                                                                                "another type",
		`"node_modules/z": {"name": "../y", "version": "1.0.0", "resolved": "https://a.example/y/-/y.tgz", "integrity": "sha512-AAAA=="}`: "no version",
	} {
		if _, err := NodeLock([]byte(lock(entries)), []byte(`{}`)); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: got %v, want %q", entries, err, reason)
		}
	}
	for text, reason := range map[string]string{`{"lockfileVersion": 1, "dependencies": {}}`: "version 1", `[]`: "not a JSON object", `{"lockfileVersion": 3}`: "version 3"} {
		needs, found := readSkill(t, files{"SKILL.md": nodeFront, "package.json": `{"dependencies": {"z": "1"}}`, "package-lock.json": text})
		if got := needs.Node.Problem; !strings.Contains(got.Reason, reason) || got.File != "package-lock.json" || len(found) != 1 {
			t.Errorf("%s: got %+v, %v; want %q", text, got, found, reason)
		}
	}
}
