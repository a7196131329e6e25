package environment

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/sandbox"
)

// A nodePkg is a package of a registry: fields of its package.json, and its files.
type nodePkg struct {
	name, version string
	fields        map[string]any
	files         map[string]string   // from name to text; "x" before the name: executable
	raw           func(w *tar.Writer) // adds what no honest package has
}

// manifest is the package.json.
func (p nodePkg) manifest() map[string]any {
	m := map[string]any{"name": p.name, "version": p.version}
	for name, value := range p.fields {
		m[name] = value
	}
	return m
}

func (p nodePkg) tarball() []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	text, _ := json.Marshal(p.manifest())
	files := map[string]string{"package.json": string(text)}
	for name, text := range p.files {
		files[name] = text
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text))})
		w.Write([]byte(text))
	}
	if p.raw != nil {
		p.raw(w)
	}
	w.Close()
	z.Close()
	return out.Bytes()
}

func integrity(data []byte) string {
	sum := sha512.Sum512(data)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// A nodeRegistry serves packages as npm's registry does: a document for each name, and files.
type nodeRegistry struct {
	*httptest.Server
	packages map[string]map[string]nodePkg
	tarballs map[string][]byte // by NAME/VERSION
	mu       sync.Mutex
	asked    []string
	// handle, if set, answers first; true means that it has.
	handle func(http.ResponseWriter, *http.Request) bool
	// dist, if set, changes the entry of a file in a document.
	dist func(p nodePkg, d map[string]string)
}

func newRegistry(t testing.TB, packages ...nodePkg) *nodeRegistry {
	t.Helper()
	r := &nodeRegistry{packages: map[string]map[string]nodePkg{}, tarballs: map[string][]byte{}}
	for _, p := range packages {
		if r.packages[p.name] == nil {
			r.packages[p.name] = map[string]nodePkg{}
		}
		r.packages[p.name][p.version] = p
		r.tarballs[p.name+"/"+p.version] = p.tarball()
	}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Server.Close)
	return r
}

func (r *nodeRegistry) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

func (r *nodeRegistry) serve(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.asked = append(r.asked, q.URL.Path)
	r.mu.Unlock()
	if r.handle != nil && r.handle(w, q) {
		return
	}
	name, rest, file := strings.Cut(strings.TrimPrefix(q.URL.Path, "/"), "/-/")
	if file {
		version := strings.TrimSuffix(strings.TrimPrefix(rest, filepath.Base(name)+"-"), ".tgz")
		if data := r.tarballs[name+"/"+version]; data != nil {
			w.Write(data)
			return
		}
	}
	versions, latest := map[string]any{}, ""
	for version, p := range r.packages[name] {
		m := p.manifest()
		d := map[string]string{"tarball": fmt.Sprintf("%s/%s/-/%s-%s.tgz", r.URL, name, filepath.Base(name), version), "integrity": integrity(r.tarballs[name+"/"+version])}
		if r.dist != nil {
			r.dist(p, d)
		}
		m["dist"] = d
		versions[version], latest = m, max(latest, version)
	}
	if len(versions) == 0 {
		http.NotFound(w, q)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.npm.install-v1+json")
	json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": latest}, "versions": versions})
}

// from is the configuration that takes Node packages from a registry.
func (r *nodeRegistry) from(c *Config) { c.Registry = r.URL }

// nodeOf is this machine's Node.js.
func nodeOf(t testing.TB) Node {
	t.Helper()
	hosttest.Host(t) // skips the test without root
	r, image, ok := hosttest.Runtimes(t).Node()
	if !ok {
		t.Fatal("node is missing; run make packages-test")
	}
	return Node{Runtime: r, Image: image}
}

func prepareNode(t *testing.T, s *Store, tenant string, sk *skill.Skill) (Environment, string, error) {
	t.Helper()
	var log bytes.Buffer
	env, err := s.PrepareNode(t.Context(), tenant, sk, nodeOf(t), false, func(p []byte) error { log.Write(p); return nil })
	return env, log.String(), err
}

func mustPrepareNode(t *testing.T, s *Store, tenant string, sk *skill.Skill) Environment {
	t.Helper()
	env, log, err := prepareNode(t, s, tenant, sk)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	return env
}

func nodeUse(t testing.TB, tenant string, sk *skill.Skill) Use {
	return Use{Tenant: tenant, Skill: sk, Node: nodeOf(t), RunsNode: true}
}

// Packages that tests share: left needs right and has a program.
var (
	right = nodePkg{name: "@sk/right", version: "2.1.0", files: map[string]string{"index.js": "module.exports = 'right'\n"}}
	left  = nodePkg{name: "left", version: "1.0.0", fields: map[string]any{"dependencies": map[string]string{"@sk/right": "^2.0.0"}, "bin": map[string]string{"left": "cli.js"}},
		files: map[string]string{
			"index.js": "module.exports = 'left of ' + require('@sk/right')\n",
			"cli.js":   "#!/usr/bin/env node\nconsole.log(require('./index.js'), process.argv.slice(2))\n",
		}}
	// modern has a module for import alone.
	modern = nodePkg{name: "modern", version: "3.0.0", fields: map[string]any{"type": "module", "exports": "./index.mjs"},
		files: map[string]string{"index.mjs": "import left from 'left'\nexport default 'modern and ' + left\n"}}
)

const nodeManifestText = `{"dependencies": {"left": "^1.0.0"}, "devDependencies": {"modern": "3"}}`

// lockOf is the lock of nodeManifestText.
func lockOf(edit func(packages map[string]map[string]any)) string {
	entry := func(p nodePkg, host string) map[string]any {
		e := map[string]any{"version": p.version, "integrity": integrity(p.tarball()),
			"resolved": fmt.Sprintf("%s/%s/-/%s-%s.tgz", host, p.name, filepath.Base(p.name), p.version)}
		for _, field := range []string{"dependencies", "bin"} {
			if p.fields[field] != nil {
				e[field] = p.fields[field]
			}
		}
		return e
	}
	packages := map[string]map[string]any{
		"":                       {"dependencies": map[string]string{"left": "^1.0.0"}, "devDependencies": map[string]string{"modern": "3"}},
		"node_modules/left":      entry(left, "https://registry.npmjs.org"),
		"node_modules/modern":    entry(modern, "https://registry.npmmirror.com"),
		"node_modules/@sk/right": entry(right, "https://registry.npmjs.org"),
	}
	if edit != nil {
		edit(packages)
	}
	text, _ := json.Marshal(map[string]any{"name": "demo", "lockfileVersion": 3, "requires": true, "packages": packages})
	return string(text)
}

// Prepared Node packages are found by require and import, from files, code and programs.
func TestPreparedNodePackagesRun(t *testing.T) {
	t.Parallel()
	registry := newRegistry(t, left, right, modern, nodePkg{name: "left", version: "1.1.0", fields: left.fields, files: left.files})
	s := newStore(t, registry.from)
	scripts := map[string]string{
		"scripts/a.js":  "console.log(require('left'), require.resolve('left'))\n",
		"scripts/b.mjs": "import modern from 'modern'\nconsole.log(modern)\n",
		"scripts/c.cjs": "import('modern').then((m) => console.log(m.default))\n",
	}
	for name, lock := range map[string]string{"locked": lockOf(nil), "free": ""} {
		files := map[string]string{"package.json": nodeManifestText}
		for at, text := range scripts {
			files[at] = text
		}
		if lock != "" {
			files["package-lock.json"] = lock
		}
		sk := newSkill(t, "", files)
		_, err := s.Acquire(nodeUse(t, "team", sk))
		if missing, ok := errors.AsType[*PackagesError](err); !ok || !slices.Equal(missing.Packages, []string{"left"}) || !strings.Contains(err.Error(), "skillrun prepare demo") {
			t.Errorf("%s: before prepare: got %v, want a *PackagesError", name, err)
		}
		env := mustPrepareNode(t, s, "team", sk)
		version := map[string]string{"locked": "1.0.0", "free": "1.1.0"}[name]
		if want := []string{"@sk/right==2.1.0", "left==" + version, "modern==3.0.0"}; !slices.Equal(env.Packages, want) || !strings.HasPrefix(env.Python, "node ") {
			t.Errorf("%s: got %+v, want the packages %q", name, env, want)
		}
		again := mustPrepareNode(t, s, "team", sk)
		if !again.Reused || again.Digest != env.Digest {
			t.Errorf("%s: the second time: got %+v, want %s again", name, again, env.Digest)
		}
		l, err := s.Acquire(nodeUse(t, "team", sk))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release()
		dir := sk.BaseDir() + "/scripts/"
		for _, run1 := range [][2]string{
			{"node " + dir + "a.js", "left of right /opt/node_modules/left/index.js\n"},
			{"node " + dir + "b.mjs", "modern and left of right\n"},
			{"node " + dir + "c.cjs", "modern and left of right\n"},
			{"node -p require('left')", "left of right\n"},
			{"left a b", "left of right [ 'a', 'b' ]\n"},
		} {
			args := strings.SplitN(run1[0], " ", 3)
			if out, _ := run(t, sk, nodeInvocation(), l, args...); out != run1[1] && run1[0] != "left a b" {
				t.Errorf("%s: %s: got %q, want %q", name, run1[0], out, run1[1])
			}
		}
		if out, exit := run(t, sk, nodeInvocation(), l, "left", "a", "b"); exit.End != sandbox.Exited || out != "left of right [ 'a', 'b' ]\n" {
			t.Errorf("%s: its program: got %q, %+v", name, out, exit)
		}
		l.Release()
	}
	if u, _ := url.Parse(registry.URL); slices.Contains(registry.requests(), u.Path+"/-/npm/v1/security/audits/quick") {
		t.Error("npm asks for an audit")
	}
	if got := leftIn(t, s); len(got) > 0 {
		t.Errorf("left in the store: %q", got)
	}

}

// An optional peer is installed neither with a lock, which lacks it, nor without one. Other peers are.
func TestOptionalPeersAreNotInstalled(t *testing.T) {
	t.Parallel()
	s := newStore(t, newRegistry(t, left, right, modern).from)
	const text = `{"dependencies": {"@sk/right": "2"}, "peerDependencies": {"left": "1", "modern": "3"}, "peerDependenciesMeta": {"left": {"optional": true}}}`
	lock := lockOf(func(packages map[string]map[string]any) { delete(packages, "node_modules/left") })
	for name, files := range map[string]map[string]string{
		"locked": {"package.json": text, "package-lock.json": lock}, "free": {"package.json": text},
	} {
		env, log, err := prepareNode(t, s, "team", newSkill(t, "", files))
		if want := []string{"@sk/right==2.1.0", "modern==3.0.0"}; err != nil || !slices.Equal(env.Packages, want) {
			t.Errorf("%s: got %q, %v, want %q\n%s", name, env.Packages, err, want, log)
		}
	}
	const only = `{"peerDependencies": {"left": "1"}, "peerDependenciesMeta": {"left": {"optional": true}}}`
	if env, log, err := prepareNode(t, s, "team", newSkill(t, "", map[string]string{"package.json": only})); err != nil || len(env.Packages) > 0 {
		t.Errorf("only an optional peer: got %q, %v\n%s", env.Packages, err, log)
	}
	const both = `{"devDependencies": {"left": "1"}, "peerDependencies": {"left": "1"}, "peerDependenciesMeta": {"left": {"optional": true}}}`
	env, log, err := prepareNode(t, s, "team", newSkill(t, "", map[string]string{"package.json": both}))
	if want := []string{"@sk/right==2.1.0", "left==1.0.0"}; err != nil || !slices.Equal(env.Packages, want) {
		t.Errorf("a peer for development, too: got %q, %v, want %q\n%s", env.Packages, err, want, log)
	}
}

// nodeInvocation is the invocation of a Node program: it has no Python.
func nodeInvocation() runtime.Invocation { return runtime.Invocation{} }

// newNode imports a skill that needs packages, each any version.
func newNode(t *testing.T, packages ...string) *skill.Skill {
	t.Helper()
	list := map[string]string{}
	for _, name := range packages {
		list[name] = "*"
	}
	text, _ := json.Marshal(map[string]any{"dependencies": list})
	return newSkill(t, "", map[string]string{"package.json": string(text)})
}

// What packages and registries do that they must not is an error with its reason, and leaves
// nothing.
func TestHostileNodePackages(t *testing.T) {
	t.Parallel()
	needs := func(name, version string) map[string]any {
		return map[string]any{"dependencies": map[string]string{name: version}}
	}
	registry := newRegistry(t,
		nodePkg{name: "by-url", version: "1.0.0", fields: needs("x", "http://192.0.2.1/x.tgz")},
		nodePkg{name: "by-git", version: "1.0.0", fields: needs("x", "git+https://192.0.2.1/x.git")},
		nodePkg{name: "changed", version: "1.0.0"},
		nodePkg{name: "elsewhere", version: "1.0.0"},
		nodePkg{name: "needs-none", version: "1.0.0", fields: needs("no-such-package", "1")},
	)
	registry.dist = func(p nodePkg, d map[string]string) {
		switch p.name {
		case "changed":
			d["integrity"] = integrity([]byte("another file"))
		case "elsewhere": // a service on the daemon's loopback
			d["tarball"] = strings.Replace(d["tarball"], "127.0.0.1", "127.0.0.2", 1)
		}
	}
	registry.handle = func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/not-json":
			fmt.Fprint(w, "<html>")
		case "/refused":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			return false
		}
		return true
	}
	s := newStore(t, registry.from)
	for name, want := range map[string]string{
		"by-url":     "environment of skill 'demo': npm: a package needs http://192.0.2.1/x.tgz; packages come from the daemon's sources only",
		"by-git":     "environment of skill 'demo': npm: a package needs a git repository; packages come from the daemon's sources only",
		"changed":    "environment of skill 'demo': npm: a file differs from its integrity: ",
		"elsewhere":  "registry " + registry.URL + "/: elsewhere-1.0.0.tgz is at ",
		"needs-none": "package no-such-package: not in the registry " + registry.URL,
		"not-json":   "registry " + registry.URL + "/: the document of not-json is not that of a package",
		"refused":    "registry " + registry.URL + "/: it refuses the credentials, or needs some (401 Unauthorized); see environments.registry",
	} {
		if _, log, err := prepareNode(t, s, "team", newNode(t, name)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q\n%s", name, err, want, log)
		}
	}
	if _, _, err := prepareNode(t, s, "team", newSkill(t, "", map[string]string{"package.json": `{"dependencies": {"x": "file:.."}}`})); !strings.Contains(fmt.Sprint(err), "package.json: dependencies: package \"x\"") {
		t.Errorf("a file: got %v, want a *RequirementError", err)
	}
	if got := leftIn(t, s); len(got) > 0 {
		t.Errorf("left in the store: %q", got)
	}
}

// A package.json that can't be prepared refuses executions that need its packages, and no others.
func TestUnreadableNodePackagesAreRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	for text, want := range map[string]string{
		`{"dependencies": {"x": "file:vendor/x"}}`:                  `package.json: dependencies: package "x"`,
		`{"dependencies": {"x": "1"}, "workspaces": ["a"]}`:         "package.json: it has workspaces",
		`{"dependencies": {"x": ".."}}`:                             `package.json: dependencies: package "x": ".." is no version; `,
		`{"dependencies": {"x": "x.tgz"}}`:                          `package.json: dependencies: package "x": "x.tgz" is no version; `,
		`{"devDependencies": {"x": "file:vendor/x"}}`:               "", // a program may do without
		`{"dependencies": {"../../usr/share/nodejs/x": "file:.."}}`: "", // no package has this name
		`{"dependencies": ["x"]}`:                                   "",
	} {
		l, err := s.Acquire(nodeUse(t, "team", newSkill(t, "", map[string]string{"package.json": text})))
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
		if err == nil {
			l.Release()
		}
	}
	broken := newSkill(t, "", map[string]string{"package.json": `{"dependencies": {"x": "1"}}`, "package-lock.json": "{\n,"})
	_, err := s.Acquire(nodeUse(t, "team", broken))
	_, _, prepareErr := prepareNode(t, s, "team", broken)
	for _, err := range []error{err, prepareErr} {
		if want := "package-lock.json:2: column 1: it is not JSON: "; !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("a broken lock: got %v, want %s", err, want)
		}
	}
	brings := newSkill(t, "", map[string]string{"package.json": `{"dependencies": {"x": "file:vendor/x"}}`, "node_modules/x/package.json": "{}"})
	l, err := s.Acquire(nodeUse(t, "team", brings))
	if err != nil {
		t.Fatalf("the skill brings its package: %v", err)
	}
	l.Release()
}

// A package's links, paths and program names stay within it, its scripts run only if they are
// allowed, and the bounds of the store hold for it.
func TestNodePackagesStayInside(t *testing.T) {
	t.Parallel()
	sly := nodePkg{name: "sly", version: "1.0.0",
		fields: map[string]any{
			"bin":     map[string]string{"../../outside": "cli.js", "ok": "../../../../usr/bin/id", "sly": "cli.js", "python3": "cli.js"},
			"scripts": map[string]string{"postinstall": "touch ran && echo the script of sly"},
			// npm asks for the scripts only if the document says that there are some.
			"hasInstallScript": true,
		},
		files: map[string]string{"cli.js": "#!/usr/bin/env node\nconsole.log('sly')\n"},
		raw: func(w *tar.Writer) {
			w.WriteHeader(&tar.Header{Name: "package/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"})
			w.WriteHeader(&tar.Header{Name: "package/hard", Typeflag: tar.TypeLink, Linkname: "../../../../etc/passwd"})
			w.WriteHeader(&tar.Header{Name: "/package/../../../absolute", Mode: 0o644, Size: 1})
			w.Write([]byte("x"))
			w.WriteHeader(&tar.Header{Name: "package/../../../../climbs", Mode: 0o644, Size: 1})
			w.Write([]byte("x"))
		}}
	large := nodePkg{name: "large", version: "1.0.0", files: map[string]string{"data": strings.Repeat("x", 1<<20)}}
	registry := newRegistry(t, sly, large)
	for allowed, want := range map[bool][]string{
		false: {"node_modules/.bin/sly", "node_modules/sly/cli.js", "node_modules/sly/package.json"},
		true:  {"node_modules/.bin/sly", "node_modules/sly/cli.js", "node_modules/sly/package.json", "node_modules/sly/ran"},
	} {
		s := newStore(t, func(c *Config) { registry.from(c); c.InstallScripts, c.Bytes = allowed, 1<<20 })
		sk := newNode(t, "sly")
		env, log, err := prepareNode(t, s, "team", sk)
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if said := strings.Contains(log, "install scripts did not run, because environments.install_scripts is off: sly\n"); said == allowed {
			t.Errorf("scripts allowed %t: the log names the skipped scripts: %t\n%s", allowed, said, log)
		}
		root := s.tenants["team"].kept[env.Digest].root()
		var got []string
		filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				got = append(got, strings.TrimPrefix(at, root+"/"))
			}
			return err
		})
		// npm may make programs of the other names, within .bin and leading into the package.
		got = slices.DeleteFunc(got, func(at string) bool {
			name, bin := strings.CutPrefix(at, "node_modules/.bin/")
			return bin && (name == "outside" || name == "ok")
		})
		if !slices.Equal(got, want) {
			t.Errorf("scripts allowed %t: got %q, want %q\n%s", allowed, got, want, log)
		}
		if !allowed {
			_, _, err := prepareNode(t, s, "team", newNode(t, "large"))
			if over, ok := errors.AsType[*TooLargeError](err); !ok || over.Limit != 1<<20 {
				t.Errorf("more than environments.bytes: got %v, want a *TooLargeError", err)
			}
		}
	}
}

// A daemon without a registry says which key names one, and one without npm what to install.
func TestNodePackagesNeedARegistry(t *testing.T) {
	t.Parallel()
	sk := newNode(t, "left")
	if _, _, err := prepareNode(t, newStore(t, nil), "team", sk); !errors.Is(err, ErrNoRegistry) {
		t.Errorf("got %v, want ErrNoRegistry", err)
	}
	root := t.TempDir()
	s := newStore(t, func(c *Config) { c.Registry, c.Rootfs = "https://registry.example/", root })
	if _, _, err := prepareNode(t, s, "team", sk); !errors.Is(err, ErrNoNpm) {
		t.Errorf("got %v, want ErrNoNpm", err)
	}
}

// A program of npx runs from its own environment, or from the skill's packages.
func TestNodeTools(t *testing.T) {
	t.Parallel()
	say := func(text string) map[string]string {
		return map[string]string{"say.js": "#!/usr/bin/env node\nconsole.log('" + text + "', process.argv.slice(2))\n"}
	}
	one := nodePkg{name: "@sk/one", version: "1.0.0", fields: map[string]any{"bin": map[string]string{"other-name": "say.js"}}, files: say("one")}
	two := nodePkg{name: "two", version: "1.0.0", fields: map[string]any{"bin": map[string]string{"b1": "say.js", "b2": "say.js"}}, files: say("two")}
	three := nodePkg{name: "three", version: "1.0.0", fields: map[string]any{"bin": map[string]string{"three": "say.js"}}, files: say("three")}
	registry := newRegistry(t, one, two, three, right)
	s := newStore(t, registry.from)
	sk := newSkill(t, "", map[string]string{
		"SKILL.md":     "---\nname: demo\ndescription: Shows things.\n---\n`npx @sk/one`, `npx two@1.0.0`, `npx never`, `npx -p two@1.0.0 b9`, `npx three@1.0.0`\n",
		"package.json": `{"devDependencies": {"two": "1"}}`, "node_modules/.bin/shipped": "#!/bin/sh\necho shipped\n",
	})
	tool := func(text string) manifest.Requirement {
		return manifest.Requirement{Text: text, File: "SKILL.md", Line: 5}
	}
	prepareTool := func(text string) (Environment, error) {
		return s.PrepareNodeTool(t.Context(), "team", sk, tool(text), nodeOf(t), false, func([]byte) error { return nil })
	}
	mustPrepareNode(t, s, "team", sk)
	for text, want := range map[string]string{
		"@sk/one": "", "@sk/one@1.0.0": "", "two@1.0.0": "", "three@1.0.0": "", "@sk/right": "it can't be used: package @sk/right has no program", "nowhere": "package nowhere: not in the registry",
	} {
		env, err := prepareTool(text)
		if want == "" && (err != nil || env.Digest == "") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %+v, %v; want %q", text, env, err, want)
		}
	}
	for _, text := range []string{"b1", "shipped"} {
		if env, err := prepareTool(text); err != nil || env.Digest != "" {
			t.Errorf("%s, which the skill's packages have: got %+v, %v", text, env, err)
		}
	}
	use := func(text, program string) (*Lease, error) {
		u := nodeUse(t, "team", sk)
		u.NodeTool = &NodeTool{text, program}
		return s.Acquire(u)
	}
	for _, tt := range [][3]string{
		{"three@2", "three", "skill 'demo' does not declare three@2: an execution installs nothing."},
		{"undeclared", "undeclared", "skill 'demo' does not declare undeclared: an execution installs nothing."},
		{"never", "never", "needs Node packages that are not installed for node "},
		{"two@1.0.0", "two", "SKILL.md:5: requirement \"two@1.0.0\": it has no program two; its programs, and those of its packages, are: b1, b2"},
	} {
		if _, err := use(tt[0], tt[1]); err == nil || !strings.Contains(err.Error(), tt[2]) {
			t.Errorf("%s: got %v, want %q", tt[0], err, tt[2])
		}
	}
	for _, tt := range [][3]string{
		{"@sk/one", "one", "one [ 'a' ]\n"}, {"two@1.0.0", "b2", "two [ 'a' ]\n"}, {"b1", "b1", "two [ 'a' ]\n"}, {"three", "three", "three [ 'a' ]\n"},
	} {
		l, err := use(tt[0], tt[1])
		if err != nil {
			t.Fatal(err)
		}
		if out, _ := run(t, sk, nodeInvocation(), l, tt[1], "a"); out != tt[2] {
			t.Errorf("%s: got %q, want %q", tt[0], out, tt[2])
		}
		l.Release()
	}
	l, err := use("shipped", "shipped")
	if err != nil || !slices.Contains(l.Path, sk.BaseDir()+"/node_modules/.bin") {
		t.Errorf("a shipped program: got %+v, %v", l, err)
	}
	l.Release()
}
