package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nodePackage returns the file of a Node package.
func nodePackage(files map[string]string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for name, text := range files {
		w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text))})
		w.Write([]byte(text))
	}
	w.Close()
	z.Close()
	return out.Bytes()
}

// nodeRegistry serves packages, each in one version, by the protocol of npm's registry. It wants
// a token.
func nodeRegistry(t *testing.T, packages map[string]map[string]string) (url string) {
	t.Helper()
	files := map[string][]byte{}
	for name, content := range packages {
		files[name] = nodePackage(content)
	}
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		name, _, file := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/-/")
		if packages[name] == nil {
			http.NotFound(w, r)
			return
		}
		if file {
			w.Write(files[name])
			return
		}
		var fields map[string]any
		json.Unmarshal([]byte(packages[name]["package.json"]), &fields)
		sum := sha512.Sum512(files[name])
		fields["dist"] = map[string]string{"tarball": s.URL + "/" + name + "/-/" + path.Base(name) + ".tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		version := fields["version"].(string)
		json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": version}, "versions": map[string]any{version: fields}})
	}))
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http://", "http://s3cret@", 1)
}

// Packages of the tests: greet needs @sk/base, and has a program of another name.
var nodeGreet = map[string]map[string]string{
	"greet": {
		"package.json": `{"name": "greet", "version": "1.2.0", "dependencies": {"@sk/base": "^2"}, "bin": {"say": "say.js"}}`,
		"index.js":     "module.exports = 'greet on ' + require('@sk/base')\n",
		"say.js":       "#!/usr/bin/env node\nconsole.log(require('./index.js'), process.argv.slice(2))\n",
	},
	"@sk/base": {"package.json": `{"name": "@sk/base", "version": "2.0.1"}`, "index.js": "module.exports = 'base'\n"},
}

// `skillrun prepare` makes the packages of a package.json usable for scripts, code, commands and
// the programs that they start; without it an execution that runs Node is refused.
func TestNodePackages(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	const rules = "allowed-tools: Bash(node:*) Bash(say:*) Bash(echo:*)"
	manifest := `{"dependencies": {"greet": "^1.0.0"}}`
	writeSkill(t, dir, "web", rules, map[string]string{
		"package.json":    manifest,
		"scripts/a.js":    "console.log(require('greet'))\n",
		"scripts/b.mjs":   "import greet from 'greet'\nconsole.log(greet)\n",
		"scripts/c.sh":    "node scripts/a.js\nsay x\n",
		"scripts/none.sh": "echo none\n",
	})
	writeSkill(t, dir, "own", rules, map[string]string{
		"package.json": manifest, "scripts/a.js": "console.log(require('greet'))\n",
		"node_modules/greet/package.json": `{"name": "greet", "version": "1.0.0"}`, "node_modules/greet/index.js": "module.exports = 'its own'\n",
	})
	config := "environments: {registry: \"" + nodeRegistry(t, nodeGreet) + "\"}\n"
	d := startDaemonIn(t, dir, config)
	_, err := d.try(script("web", "scripts/b.mjs"))
	if info := errorInfo(err); info["reason"] != "PACKAGES_MISSING" || info["fix"] != "skillrun prepare web" || info["packages"] != "greet" || !strings.HasPrefix(info["node"], "node ") {
		t.Errorf("before prepare: got %v, %v; want PACKAGES_MISSING", err, info)
	}
	if _, err := d.try(command("web", "node scripts/a.js")); errorInfo(err)["reason"] != "PACKAGES_MISSING" {
		t.Errorf("a command before prepare: got %v, want PACKAGES_MISSING", err)
	}
	if r := d.run(script("web", "scripts/none.sh")); r.stdout.String() != "none\n" {
		t.Errorf("a script without Node: got %q, %q", r.stdout.String(), r.stderr.String())
	}
	if stdout, _ := d.cli("validate", "web").Output(); !bytes.Contains(stdout, []byte("node-package-missing")) {
		t.Errorf("validate: got %q, want node-package-missing", stdout)
	}
	stdout, stderr, exit := prepareBy(t, d, "web")
	if exit != 0 || !strings.Contains(stdout, "web: prepared for Node.js ") || !strings.Contains(stdout, "\n@sk/base==2.0.1\ngreet==1.2.0\n") || strings.Contains(stdout+stderr, "s3cret") {
		t.Fatalf("prepare: got %d, %q, %q", exit, stdout, stderr)
	}
	if stdout, _ := d.cli("validate", "web").Output(); bytes.Contains(stdout, []byte("node-package-missing")) {
		t.Errorf("validate after prepare: got %q", stdout)
	}
	// A skill of the same packages shares them; its own node_modules come first.
	if stdout, _, exit := prepareBy(t, d, "own"); exit != 0 || !strings.Contains(stdout, "was there already") {
		t.Errorf("prepare of a skill with the same packages: got %d, %q", exit, stdout)
	}
	d.stop()
	d = startDaemonIn(t, dir, config)
	for _, want := range []struct {
		name, stdout string
		got          *result
	}{
		{"require", "greet on base\n", d.run(script("web", "scripts/a.js"))},
		{"import", "greet on base\n", d.run(script("web", "scripts/b.mjs"))},
		{"a shell script", "greet on base\ngreet on base [ 'x' ]\n", d.run(script("web", "scripts/c.sh"))},
		{"a command", "greet on base\n", d.run(command("web", "node /skills/web/scripts/a.js"))},
		{"a program", "greet on base [ 'a', 'b c' ]\n", d.run(command("web", "say a 'b c'"))},
		{"its own", "its own\n", d.run(script("own", "scripts/a.js"))},
	} {
		if got := want.got.stdout.String(); got != want.stdout {
			t.Errorf("%s: got %q, %q; want %q", want.name, got, want.got.stderr.String(), want.stdout)
		}
	}
}

// Commands of npx run the packages that `skillrun prepare` has installed for them, without npm or a
// network. The rules of allowed-tools judge the line as written.
func TestCommandsOfNPX(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	const body = `---
name: guide
description: Follows the guide for scripts.
allowed-tools: Bash(npx greet@1.2.0:*) Bash(npx -y say:*) Bash(npx unknown:*) Bash(npx ./x.js) Bash(echo:*)
---

` + "```bash\nnpx greet@1.2.0 NAME\nnpx say\n```\n"
	writeSkill(t, dir, "guide", "", map[string]string{"package.json": `{"devDependencies": {"greet": "^1.0.0"}}`})
	if err := os.WriteFile(filepath.Join(dir, "skills/guide/SKILL.md"), []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
	writeSkill(t, dir, "half", "", nil)
	if err := os.WriteFile(filepath.Join(dir, "skills/half/SKILL.md"), []byte("---\nname: half\ndescription: Has a tool that is nowhere.\n---\n`npx missing-tool`, `npx greet`\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, "environments: {registry: \""+nodeRegistry(t, nodeGreet)+"\"}\n")
	for line, packages := range map[string]string{"npx greet@1.2.0 x": "greet@1.2.0", "npx -y say": "say"} {
		_, err := d.try(command("guide", line))
		if info := errorInfo(err); info["reason"] != "PACKAGES_MISSING" || info["fix"] != "skillrun prepare guide" || info["packages"] != packages {
			t.Errorf("%s: got %v, %v; want PACKAGES_MISSING", line, err, info)
		}
	}
	// One environment is for package.json, the other one for the tool.
	stdout, stderr, exit := prepareBy(t, d, "guide")
	if exit != 0 || strings.Count(stdout, "guide: prepared for Node.js ") < 2 || !strings.Contains(stderr, "tool greet@1.2.0 of SKILL.md:8") {
		t.Fatalf("prepare: got %d, %q, %q", exit, stdout, stderr)
	}
	for line, want := range map[string]string{
		"npx greet@1.2.0 a 'b c'":        "greet on base [ 'a', 'b c' ]\n",
		"echo | npx greet@1.2.0 -y":      "greet on base [ '-y' ]\n",
		"npx -y say x && echo y":         "greet on base [ 'x' ]\ny\n", // of package.json
		"timeout 60 npx greet@1.2.0 a b": "greet on base [ 'a', 'b' ]\n",
	} {
		if r := d.run(command("guide", line)); r.stdout.String() != want {
			t.Errorf("%s: got %q, %q; want %q", line, r.stdout.String(), r.stderr.String(), want)
		}
	}
	if _, stderr, exit := prepareBy(t, d, "half"); exit == 0 || !strings.Contains(stderr, "package missing-tool: not in the registry http://127.0.0.1:") || strings.Contains(stderr, "s3cret") {
		t.Errorf("prepare of a tool that the registry lacks: got %d, %q", exit, stderr)
	}
	for line, reason := range map[string]string{"npx unknown": "PACKAGES_MISSING", "npx ./x.js": "INVALID_REQUEST"} {
		_, err := d.try(command("guide", line))
		if info := errorInfo(err); info["reason"] != reason || reason == "PACKAGES_MISSING" && !strings.Contains(err.Error(), "does not declare unknown") {
			t.Errorf("%s: got %v, %v; want %s", line, err, info, reason)
		}
	}
	for _, line := range []string{"npx greet", "npx -p greet sh -c id", "npx -y evil"} {
		if _, err := d.try(command("guide", line)); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: got %v, want PERMISSION_DENIED", line, err)
		}
	}
}

// Node packages and programs of npx come from a directory of files, without a registry. `skillrun
// prepare` names the files that it left out, and says that it does not read a lock of pnpm.
func TestNodePackagesFromTarballs(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	tarballs := t.TempDir()
	for name, files := range nodeGreet {
		if err := os.WriteFile(filepath.Join(tarballs, path.Base(name)+".tgz"), nodePackage(files), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tarballs, "broken.tgz"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	writeSkill(t, dir, "web", "", map[string]string{
		"package.json": `{"dependencies": {"greet": "^1.0.0"}}`, "pnpm-lock.yaml": "lockfileVersion: '9.0'\n",
		"scripts/a.js": "console.log(require('greet'))\n",
	})
	const text = "---\nname: web\ndescription: Greets.\nallowed-tools: Bash(npx greet:*)\n---\n`npx greet`\n"
	if err := os.WriteFile(filepath.Join(dir, "skills/web/SKILL.md"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	writeSkill(t, dir, "more", "", map[string]string{"package.json": `{"dependencies": {"elsewhere": "1"}}`})
	d := startDaemonIn(t, dir, "environments: {tarballs: \""+tarballs+"\"}\n")
	_, stderr, exit := prepareBy(t, d, "web")
	for _, want := range []string{"environments.tarballs: \"broken.tgz\" is left out: not a tar file in gzip", "the versions in pnpm-lock.yaml do not count"} {
		if exit != 0 || !strings.Contains(stderr, want) {
			t.Errorf("prepare: got %d, %q, want %q", exit, stderr, want)
		}
	}
	if r := d.run(script("web", "scripts/a.js")); r.stdout.String() != "greet on base\n" {
		t.Errorf("a script: got %q, %q", r.stdout.String(), r.stderr.String())
	}
	if r := d.run(command("web", "npx greet a")); r.stdout.String() != "greet on base [ 'a' ]\n" {
		t.Errorf("npx: got %q, %q", r.stdout.String(), r.stderr.String())
	}
	if _, stderr, exit := prepareBy(t, d, "more"); exit == 0 || !strings.Contains(stderr, "package elsewhere: not in the daemon's files (environments.tarballs)") {
		t.Errorf("a package that is nowhere: got %d, %q", exit, stderr)
	}
	if stdout, _ := d.cli("validate", "web").Output(); !bytes.Contains(stdout, []byte("the versions in pnpm-lock.yaml do not count")) {
		t.Errorf("validate: got %q", stdout)
	}
}
