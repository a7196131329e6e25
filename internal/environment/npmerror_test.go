package environment

import (
	"errors"
	"strings"
	"testing"
)

// What npm refuses is said in the words of package.json: which package, which version, and what to do.
func TestReasonsOfNPM(t *testing.T) {
	t.Parallel()
	needs := func(field, name, version string) map[string]any {
		return map[string]any{field: map[string]string{name: version}}
	}
	newRight := right
	newRight.version = "9.0.0"
	registry := newRegistry(t, left, right, newRight, modern,
		nodePkg{name: "needs9", version: "1.0.0", fields: needs("dependencies", "left", "^9")},
		nodePkg{name: "peer9", version: "1.0.0", fields: needs("peerDependencies", "@sk/right", "^9")},
		nodePkg{name: "by-file", version: "1.0.0", fields: needs("dependencies", "x", "file:../y.tgz")},
		nodePkg{name: "bad-name", version: "1.0.0", fields: needs("dependencies", "_x", "1")},
		nodePkg{name: "mac", version: "1.0.0", fields: map[string]any{"os": []string{"darwin"}, "cpu": []string{"none"}}},
		nodePkg{name: "changed", version: "1.0.0"},
		nodePkg{name: "script", version: "1.0.0", fields: map[string]any{"scripts": map[string]string{"postinstall": "exit 3"}, "hasInstallScript": true}},
	)
	registry.dist = func(p nodePkg, d map[string]string) {
		if p.name == "changed" {
			d["integrity"] = integrity([]byte("another file"))
		}
	}
	s := newStore(t, func(c *Config) { registry.from(c); c.InstallScripts = true })
	const anew = "; write it anew: npm install --package-lock-only"
	for text, want := range map[string]string{
		`{"dependencies": {"left": "^9"}}`:                                   "no version of package left fits ^9 in the registry " + registry.URL + "; declare another version, or add one there",
		`{"dependencies": {"@sk/right": "nightly"}}`:                         "no version of package @sk/right fits nightly in the registry ",
		`{"dependencies": {"needs9": "1"}}`:                                  "no version of package left fits ^9 in ",
		`{"dependencies": {"left": "a b <c"}}`:                               `package left: "a b <c" is no version; write one, such as ^1.2.0`,
		`{"dependencies": {"bad-name": "1"}}`:                                `package "_x": not a valid name: name cannot start with an underscore`,
		`{"dependencies": {"by-file": "1"}}`:                                 "a package needs x from file:../y.tgz; packages come from the daemon's sources only",
		`{"dependencies": {"mac": "1"}}`:                                     "package mac@1.0.0 is for another platform: it needs cpu none, os darwin, and scripts run on cpu ",
		`{"dependencies": {"peer9": "1", "@sk/right": "2"}}`:                 "the packages do not fit together: peer9@1.0.0 needs @sk/right ^9, but there is @sk/right@2.1.0; declare ",
		`{"dependencies": {"changed": "1"}}`:                                 "a file differs from its integrity: changed-1.0.0.tgz of package changed has another hash than the lock, or the registry ",
		`{"dependencies": {"script": "1"}}`:                                  "the install script of node_modules/script failed with exit code 3: exit 3",
		`{"dependencies": {"left": "1"}, "overrides": {"left": "2"}}`:        `overrides has another version of left than dependencies (1); write the same version, or "$left" in overrides`,
		`{"dependencies": {"left": "1"}, "overrides": {"@sk/right": "$no"}}`: "overrides: $no refers to a package that package.json does not declare",
	} {
		_, log, err := prepareNode(t, s, "team", newSkill(t, "", map[string]string{"package.json": text}))
		failed, ok := errors.AsType[*BuildError](err)
		if !ok || !strings.HasPrefix(failed.Reason, "npm: "+want) {
			t.Errorf("%s: got %v, want %s\n%s", text, err, want, log)
		}
	}
	for text, want := range map[string]string{
		`{"dependencies": {"left": "^1.0.0", "@sk/right": "9"}, "devDependencies": {"modern": "3"}}`: "the lock does not fit package.json: it lacks @sk/right@2.1.0, it has @sk/right@2.1.0 instead of @sk/right@9.0.0" + anew,
		`{"dependencies": {"left": "^1.0.0", "script": "*"}, "devDependencies": {"modern": "3"}}`:    "the lock does not fit package.json: it lacks script@1.0.0" + anew,
	} {
		_, log, err := prepareNode(t, s, "team", newSkill(t, "", map[string]string{"package.json": text, "package-lock.json": lockOf(nil)}))
		failed, ok := errors.AsType[*BuildError](err)
		if !ok || failed.Reason != "npm: "+want {
			t.Errorf("%s: got %v, want %s\n%s", text, err, want, log)
		}
	}
}

// Errors of npm that have no words of their own lose npm's label.
func TestWordsOfNPM(t *testing.T) {
	for said, want := range map[string]string{
		"npm error code ENOSPC\nnpm error nospc ENOSPC: no space left on device, write\n":                  "three quarters of environments.memory (1024 bytes), in which the packages lie, are full; ",
		"npm ERR! code ENOVERSIONS\nnpm ERR! No versions available for @sk/x\n":                            "package @sk/x has no version that can be used in the registry; ",
		"npm error code EUSAGE\nnpm error\nnpm error The `npm ci` command can only install with\n":         "npm can't use the lock; write it anew: npm install --package-lock-only",
		"npm error code ENOENT\nnpm error syscall open\nnpm error enoent ENOENT: no such file, open 'x'\n": "ENOENT: no such file, open 'x'",
		"npm error code ETARGET\nnpm error notarget Other words\n":                                         "Other words",
		"npm error code ETARGET\nnpm error notarget No matching version found for a@1 - 2 || 3.0.0.\n":     "no version of package a fits 1 - 2 || 3.0.0 in the registry; ",
		"npm error A complete log of this run can be found in: x\n":                                        "",
	} {
		f := readNPM([]byte(said))
		if got := f.reason("the registry", 1024); !strings.HasPrefix(got+f.sentence(), want) || want == "" && got+f.sentence() != "" {
			t.Errorf("%q: got %q, want %q", said, got, want)
		}
	}
}
