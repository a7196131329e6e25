package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A TypeScript file is run by a node that strips the types. An older node is refused, with the
// version that would do.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node here")
	}
	const text = "const words: string[] = process.argv.slice(2)\nconsole.log(words.length)\n"
	file := filepath.Join(t.TempDir(), "a.ts")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	strips := exec.Command(node, "--experimental-strip-types", file).Run() == nil
	d := startShared(t)
	d.addSkill("typed", "", map[string]string{"scripts/a.ts": text})
	r, err := d.try(script("typed", "scripts/a.ts", "x", "y"))
	if strips {
		if err != nil {
			t.Fatal(err)
		}
		r.wantExit(t, 0)
		r.wantStdout(t, "2\n")
		if r.stderr.Len() > 0 {
			t.Errorf("stderr %q", r.stderr.String())
		}
		return
	}
	if s := status.Convert(err); s.Code() != codes.FailedPrecondition || !strings.Contains(s.Message(), "TypeScript needs Node.js 22.18 or newer") {
		t.Errorf("got %v, want a refusal", err)
	}
	wantStatus(t, err, "FailedPrecondition", "INTERPRETER_MISSING")
}

// A TypeScript script imports packages that were prepared for the node that strips its types. That
// node is the node of the test clients (nodeProgram), in a separate root file system.
func TestTypeScriptWithNodePackages(t *testing.T) {
	t.Parallel()
	tree := newTree(t)
	addNode(t, tree)
	dir := newDir(t)
	writeSkill(t, dir, "typed", "", map[string]string{
		"package.json":  `{"dependencies": {"greet": "^1.0.0"}}`,
		"scripts/a.mts": "import greet from 'greet'\nconst words: string[] = process.argv.slice(2)\nconsole.log(greet, words.length)\n",
		"scripts/b.cts": "const greet: string = require('greet')\nconsole.log(greet)\n",
	})
	d := startDaemonIn(t, dir, fmt.Sprintf("images: {modern: {rootfs: %q}}\nruntimes: {node: modern}\nenvironments: {registry: %q}\n", tree, nodeRegistry(t, nodeGreet)))
	if _, err := d.try(script("typed", "scripts/a.mts")); errorInfo(err)["reason"] != "PACKAGES_MISSING" {
		t.Errorf("before prepare: got %v, want PACKAGES_MISSING", err)
	}
	if stdout, stderr, exit := prepareBy(t, d, "typed"); exit != 0 || !strings.Contains(stdout, "greet==1.2.0") {
		t.Fatalf("prepare: got %d, %q, %q", exit, stdout, stderr)
	}
	for path, want := range map[string]string{"scripts/a.mts": "greet on base 2\n", "scripts/b.cts": "greet on base\n"} {
		r := d.run(script("typed", path, "x", "y"))
		r.wantExit(t, 0)
		r.wantStdout(t, want)
	}
}

// addNode adds the clients' node with its libraries, and this machine's npm, to a root file system.
func addNode(t *testing.T, tree string) {
	t.Helper()
	node := nodeProgram(t)
	npm, err := filepath.EvalSymlinks("/usr/bin/npm")
	if err != nil {
		t.Skip("no npm here: ", err)
	}
	copied := func(from, to string) {
		to = filepath.Join(tree, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-rL", from, to).CombinedOutput(); err != nil {
			t.Fatalf("cp %s: %v: %s", from, err, out)
		}
	}
	copied(node, "usr/bin/node")
	copied("/usr/bin/env", "usr/bin/env")
	libraries, err := exec.Command("ldd", node).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range loaded.FindAllStringSubmatch(string(libraries), -1) {
		copied(m[1], m[1])
	}
	// npm and its modules: .../node_modules/npm/bin/npm-cli.js, or Debian's /usr/share/nodejs, where
	// links of other packages may lead nowhere. So the exit code of cp is ignored; the exit code of npm
	// is not.
	modules := filepath.Dir(filepath.Dir(filepath.Dir(npm)))
	if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, modules)), 0o755); err != nil {
		t.Fatal(err)
	}
	exec.Command("cp", "-rL", modules, filepath.Join(tree, modules)).Run()
	if err := os.Symlink(npm, filepath.Join(tree, "usr/bin/npm")); err != nil {
		t.Fatal(err)
	}
}
