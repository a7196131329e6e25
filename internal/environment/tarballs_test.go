package environment

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skillrun/skillrun/sandbox"
)

// A tarballDir is a directory of Node packages.
type tarballDir string

func newTarballs(t testing.TB, packages ...nodePkg) tarballDir {
	t.Helper()
	d := tarballDir(t.TempDir())
	for _, p := range packages {
		d.write(t, strings.ReplaceAll(strings.TrimPrefix(p.name, "@"), "/", "-")+"-"+p.version+".tgz", p.tarball())
	}
	return d
}

func (d tarballDir) write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(d), name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// from is the configuration that takes Node packages from the directory.
func (d tarballDir) from(c *Config) { c.Tarballs = string(d) }

// Packages of a directory are installed and run, with a lock and without one, and no registry is
// needed.
func TestTarballs(t *testing.T) {
	t.Parallel()
	later := left
	later.version = "1.1.0"
	beta := left
	beta.version = "1.2.0-beta.1"
	s := newStore(t, newTarballs(t, left, later, beta, right, modern).from)
	for name, want := range map[string]string{"locked": "1.0.0", "free": "1.1.0"} {
		files := map[string]string{"package.json": nodeManifestText, "a.js": "console.log(require('left'))\n"}
		if name == "locked" {
			files["package-lock.json"] = lockOf(nil)
		}
		sk := newSkill(t, "", files)
		env := mustPrepareNode(t, s, "team", sk)
		if want := []string{"@sk/right==2.1.0", "left==" + want, "modern==3.0.0"}; !slices.Equal(env.Packages, want) {
			t.Errorf("%s: got %q, want %q", name, env.Packages, want)
		}
		l, err := s.Acquire(nodeUse(t, "team", sk))
		if err != nil {
			t.Fatal(err)
		}
		for text, args := range map[string][]string{"left of right\n": {"node", sk.BaseDir() + "/a.js"}, "left of right [ 'x' ]\n": {"left", "x"}} {
			if out, exit := run(t, sk, nodeInvocation(), l, args...); exit.End != sandbox.Exited || out != text {
				t.Errorf("%s: %q: got %q, %+v, want %q", name, args, out, exit, text)
			}
		}
		l.Release()
	}
}

// The files of directories.bin are programs, as in a registry, unless the package names its programs in bin.
func TestTarballsWithADirectoryOfPrograms(t *testing.T) {
	t.Parallel()
	say := func(text string) string {
		return "#!/usr/bin/env node\nconsole.log('" + text + "', process.argv.slice(2))\n"
	}
	files := map[string]string{"tools/one": say("one"), "tools/deep/two.js": say("two"), "tools/.hidden": say("hidden"), "tools/.d/three": say("three"), "toolsmore/four": say("four")}
	var packages []nodePkg
	for name, fields := range map[string]map[string]any{
		"plain": {}, "up": {"directories": map[string]any{"bin": "../../tools"}}, "sk-dots": {"directories": map[string]any{"bin": "./tools/"}},
		"both": {"directories": map[string]any{"bin": "tools"}, "bin": map[string]string{"only": "toolsmore/four"}}, "none": {"directories": map[string]any{"bin": "nowhere"}},
		"listed": {"directories": []string{"tools"}}, "number": {"directories": map[string]any{"bin": 1}},
	} {
		packages = append(packages, nodePkg{name: name, version: "1.0.0", fields: fields, files: files})
	}
	s := newStore(t, newTarballs(t, packages...).from)
	for name, want := range map[string][]string{
		"plain": nil, "up": {"one", "two.js"}, "sk-dots": {"one", "two.js"}, "both": {"only"}, "none": nil, "listed": nil, "number": nil,
	} {
		sk := newNode(t, name)
		env, log, err := prepareNode(t, s, "team", sk)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, log)
		}
		programs, err := programsOf(s.tenants["team"].kept[env.Digest].root())
		if err != nil || !slices.Equal(programs, want) {
			t.Errorf("%s: got the programs %q, %v, want %q\n%s", name, programs, err, want, log)
		}
		l, err := s.Acquire(nodeUse(t, "team", sk))
		if err != nil {
			t.Fatal(err)
		}
		for _, program := range programs {
			if out, exit := run(t, sk, nodeInvocation(), l, program, "x"); exit.Code != 0 || !strings.HasSuffix(out, " [ 'x' ]\n") {
				t.Errorf("%s: %s: got %q, %+v", name, program, out, exit)
			}
		}
		l.Release()
	}
}

// A package of the directory comes from there alone; others come from the registry.
func TestTarballsBesideARegistry(t *testing.T) {
	t.Parallel()
	higher := right
	higher.version = "2.9.0"
	registry := newRegistry(t, left, higher)
	d := newTarballs(t, right)
	s := newStore(t, func(c *Config) { registry.from(c); d.from(c) })
	env := mustPrepareNode(t, s, "team", newNode(t, "left"))
	if want := []string{"@sk/right==2.1.0", "left==1.0.0"}; !slices.Equal(env.Packages, want) {
		t.Errorf("got %q, want %q", env.Packages, want)
	}
	if asked := registry.requests(); slices.ContainsFunc(asked, func(at string) bool { return strings.Contains(at, "right") }) {
		t.Errorf("the registry was asked for %q", asked)
	}
	_, _, err := prepareNode(t, s, "team", newNode(t, "nowhere"))
	if want := "package nowhere: not in the registry " + registry.URL + " and the daemon's files (environments.tarballs); check its name"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Each build sees the files that the directory has when the build begins.
func TestTarballsChange(t *testing.T) {
	t.Parallel()
	d := newTarballs(t, right)
	s := newStore(t, d.from)
	prepare := func() (Environment, error) {
		return s.PrepareNode(t.Context(), "team", newNode(t, "@sk/right"), nodeOf(t), true, func([]byte) error { return nil })
	}
	if env, err := prepare(); err != nil || !slices.Equal(env.Packages, []string{"@sk/right==2.1.0"}) {
		t.Errorf("got %+v, %v", env, err)
	}
	later := right
	later.version = "2.2.0"
	d.write(t, "sk-right-2.1.0.tgz", later.tarball()) // the name of a file says nothing
	if env, err := prepare(); err != nil || !slices.Equal(env.Packages, []string{"@sk/right==2.2.0"}) {
		t.Errorf("another file: got %+v, %v", env, err)
	}
	if err := os.Remove(filepath.Join(string(d), "sk-right-2.1.0.tgz")); err != nil {
		t.Fatal(err)
	}
	_, err := prepare()
	if missing, ok := errors.AsType[*NoPackageError](err); !ok || missing.Error() != "package @sk/right: not in the daemon's files (environments.tarballs); check its name, or add it there" {
		t.Errorf("no file: got %v, want a *NoPackageError", err)
	}
	if err := os.Remove(string(d)); err != nil {
		t.Fatal(err)
	}
	_, err = prepare()
	if gone, ok := errors.AsType[*IndexError](err); !ok || !strings.HasSuffix(gone.Error(), "; see environments.tarballs in the daemon's configuration") {
		t.Errorf("no directory: got %v, want an *IndexError", err)
	}
}

// zipped returns a tar file with one entry.
func zipped(name string, size int64, content io.Reader) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size})
	io.Copy(w, content)
	w.Close()
	z.Close()
	return out.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Files that are no packages, or lie, are left out with a reason, and the others stay usable.
func TestHostileTarballs(t *testing.T) {
	t.Parallel()
	withJSON := func(text string) []byte {
		return zipped("package/package.json", int64(len(text)), strings.NewReader(text))
	}
	d := newTarballs(t, right)
	want := map[string]string{}
	for name, file := range map[string]struct {
		data []byte
		want string
	}{
		"text.tgz":      {[]byte("hello"), "not a tar file in gzip: "},
		"empty.tgz":     {nil, "not a tar file in gzip: "},
		"cut.tgz":       {right.tarball()[:40], "not a tar file in gzip: "},
		"bomb.tgz":      {zipped("package/a", 512<<20+1, io.LimitReader(zeros{}, 512<<20+1)), "no package.json in its first 536870912 bytes, unpacked"},
		"deep.tgz":      {zipped("package/x/package.json", 2, strings.NewReader("{}")), "it has no package.json"},
		"long.tgz":      {withJSON(strings.Repeat(" ", 1<<20+1)), "its package.json is 1048577 bytes long, the maximum is 1048576"},
		"wide.tgz":      {withJSON(`{"name": "wide", "version": "1.0.0", "engines": "` + strings.Repeat("x", 64<<10) + `"}`), "its package.json: its fields for npm have more than 65536 bytes"},
		"array.tgz":     {withJSON(`[]`), "its package.json: not JSON of the known form"},
		"climbs.tgz":    {withJSON(`{"name": "../x", "version": "1.0.0"}`), `its package.json: package "../x": not a valid name`},
		"nameless.tgz":  {withJSON(`{"version": "1.0.0"}`), `its package.json: package "": not a valid name`},
		"tag.tgz":       {withJSON(`{"name": "x", "version": "latest"}`), `its package.json: "latest" is no version, such as 1.2.3`},
		"short.tgz":     {withJSON(`{"name": "x", "version": "1.2"}`), `its package.json: "1.2" is no version, such as 1.2.3`},
		"listed.tgz":    {withJSON(`{"name": "x", "version": "1.0.0", "dependencies": ["a"]}`), "its package.json: not JSON of the known form"},
		"wrongkind.tgz": {withJSON(`{"name": "x", "version": "1.0.0", "peerDependencies": {"a": 1}}`), "its package.json: not JSON of the known form"},
		"programs.tgz": {nodePkg{name: "programs", version: "1.0.0", fields: map[string]any{"directories": map[string]string{"bin": "b"}}, raw: func(w *tar.Writer) {
			for i := range 1000 {
				w.WriteHeader(&tar.Header{Name: fmt.Sprintf("package/b/%d/%s", i, strings.Repeat("x", 90)), Mode: 0o644})
			}
		}}.tarball(), `its directory for programs, "b/", has names of more than 65536 bytes`},
		"twice.tgz": {withJSON(`{"name": "@sk/right", "version": "2.1.0"}`), `"sk-right-2.1.0.tgz" has @sk/right 2.1.0, too, and differs`},
	} {
		d.write(t, name, file.data)
		want[name] = file.want
	}
	d.write(t, "sk-right-copy.tgz", right.tarball())
	d.write(t, "notes.txt", []byte("no package"))
	at := func(name string) string { return filepath.Join(string(d), name) }
	outside := filepath.Join(t.TempDir(), "outside.tgz")
	err := errors.Join(os.WriteFile(outside, left.tarball(), 0o644), os.Symlink(outside, at("outside.tgz")), os.Symlink("nowhere", at("broken.tgz")),
		os.Mkdir(at("dir.tgz"), 0o755), syscall.Mkfifo(at("pipe.tgz"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	want["outside.tgz"], want["broken.tgz"], want["dir.tgz"], want["pipe.tgz"] = "path escapes from parent", "no such file or directory", "not a file", "not a file"
	// "twice.tgz" comes after "sk-right-2.1.0.tgz", so the other one stays.
	var daemon bytes.Buffer
	s := newStore(t, func(c *Config) { d.from(c); c.Log = logTo(&daemon) })
	env, log, err := prepareNode(t, s, "team", newNode(t, "@sk/right"))
	if err != nil || !slices.Equal(env.Packages, []string{"@sk/right==2.1.0"}) {
		t.Errorf("got %+v, %v", env, err)
	}
	for name, reason := range want {
		if line := fmt.Sprintf("environments.tarballs: %q is left out: %s", name, reason); !strings.Contains(log, line) {
			t.Errorf("%s: want %q in the log", name, line)
		}
	}
	if got := strings.Count(log, "is left out"); got != len(want) {
		t.Errorf("got %d lines about files that are left out, want %d:\n%s", got, len(want), log)
	}
	if _, _, err := prepareNode(t, s, "team", newNode(t, "@sk/right")); err != nil {
		t.Error(err)
	}
	for name := range want {
		// The daemon's log has a file once, and not those that can't be opened, which have no state that could change.
		unopened := slices.Contains([]string{"outside.tgz", "broken.tgz", "dir.tgz", "pipe.tgz"}, name)
		if got := strings.Count(daemon.String(), "file="+name+" "); got != 1 && !unopened || got != 0 && unopened {
			t.Errorf("%s: %d lines in the daemon's log", name, got)
		}
	}
	if got := leftIn(t, s); len(got) > 0 {
		t.Errorf("left in the store: %q", got)
	}
}

// npm refuses the same packages from a directory as from a registry.
func TestTarballsOfBadContent(t *testing.T) {
	t.Parallel()
	byURL := nodePkg{name: "by-url", version: "1.0.0", fields: map[string]any{"dependencies": map[string]string{"x": "http://192.0.2.1/x.tgz"}}}
	byFile := nodePkg{name: "by-file", version: "1.0.0", fields: map[string]any{"dependencies": map[string]string{"x": "file:/etc"}}}
	climber := nodePkg{name: "climber", version: "1.0.0", raw: func(w *tar.Writer) {
		w.WriteHeader(&tar.Header{Name: "package/../../../../climbs", Mode: 0o644, Size: 1})
		w.Write([]byte("x"))
		w.WriteHeader(&tar.Header{Name: "package/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"})
	}}
	script := nodePkg{name: "script", version: "1.0.0", fields: map[string]any{"scripts": map[string]string{"postinstall": "touch ran"}, "bin": "./cli.js"},
		files: map[string]string{"cli.js": "#!/usr/bin/env node\n"}}
	changed := right
	changed.files = map[string]string{"index.js": "module.exports = 'another'\n"}
	d := newTarballs(t, byURL, byFile, climber, script, left, modern, changed)
	for _, allowed := range []bool{false, true} {
		s := newStore(t, func(c *Config) { d.from(c); c.InstallScripts = allowed })
		env, log, err := prepareNode(t, s, "team", newNode(t, "climber", "script"))
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		root := s.tenants["team"].kept[env.Digest].root()
		for name, want := range map[string]bool{"climber/package.json": true, "climber/link": false, ".bin/script": true, "script/ran": allowed} {
			if _, err := os.Lstat(filepath.Join(root, "node_modules", name)); (err == nil) != want {
				t.Errorf("scripts allowed %t: %s: got %v, want it there: %t", allowed, name, err, want)
			}
		}
	}
	s := newStore(t, d.from)
	if _, _, err := prepareNode(t, s, "team", newNode(t, "by-url")); err == nil || !strings.Contains(err.Error(), "a package needs http://192.0.2.1/x.tgz") {
		t.Errorf("by-url: got %v", err)
	}
	if env, _, err := prepareNode(t, s, "team", newNode(t, "by-file")); err == nil {
		t.Errorf("by-file: got %+v", env)
	}
	sk := newSkill(t, "", map[string]string{"package.json": nodeManifestText, "package-lock.json": lockOf(nil)})
	if _, _, err := prepareNode(t, s, "team", sk); err == nil || !strings.Contains(err.Error(), "a file differs from its integrity: ") {
		t.Errorf("another file than the lock's: got %v", err)
	}
	if got := leftIn(t, s); len(got) > 0 {
		t.Errorf("left in the store: %q", got)
	}
}

// The wall time of a build bounds the reading of the directory, too.
func TestTarballsWithinWallTime(t *testing.T) {
	t.Parallel()
	d := newTarballs(t, right)
	s := newStore(t, func(c *Config) { d.from(c); c.Wall = time.Nanosecond })
	_, _, err := prepareNode(t, s, "team", newNode(t, "@sk/right"))
	if late, ok := errors.AsType[*BuildError](err); !ok || !strings.Contains(late.Error(), "environments.tarballs were not read after 1ns, the limit of environments.wall_time") {
		t.Errorf("got %v, want a *BuildError", err)
	}
}
