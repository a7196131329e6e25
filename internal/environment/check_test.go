package environment

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/durable"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/scarcetest"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// A machine is a root file system with packages, for the check only.
type rootfs struct {
	t   testing.TB
	dir string
}

func newRootfs(t testing.TB, files map[string]string) rootfs {
	r := rootfs{t, t.TempDir()}
	for name, text := range files {
		r.write(name, text)
	}
	return r
}

func (r rootfs) write(name, text string) {
	r.t.Helper()
	p := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r rootfs) store() *Store {
	r.t.Helper()
	s, err := Open(Config{Dir: filepath.Join(r.t.TempDir(), "environments"), Rootfs: r.dir})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

var python311 = runtime.Runtime{Language: "python", Path: "/usr/bin/python3", Version: "3.11.2"}

// debian is what Debian's Python finds.
var debian = map[string]string{
	"usr/lib/python3/dist-packages/pandas-1.5.3.dist-info/METADATA":          "Metadata-Version: 2.1\nName: pandas\nVersion: 1.5.3\n\nVersion: 9\n",
	"usr/lib/python3/dist-packages/Pillow-9.4.0.egg-info/PKG-INFO":           "Name: Pillow\nVersion: 9.4.0\n",
	"usr/lib/python3/dist-packages/typing_extensions-4.4.0-py3.11.egg-info":  "Name: typing_extensions\nVersion: 4.4.0\n",
	"usr/lib/python3/dist-packages/bare-2.0.egg-info/other":                  "",
	"usr/lib/python3/dist-packages/six.py":                                   "",
	"usr/local/lib/python3.11/dist-packages/PyYAML-6.0.dist-info/METADATA":   "Name: PyYAML\nVersion: 6.0\n",
	"usr/local/lib/python3.10/dist-packages/old-1.0.dist-info/METADATA":      "Name: old\nVersion: 1.0\n",
	"usr/lib/python3.11/json/__init__.py":                                    "",
	"usr/lib/python3.11/csv.py":                                              "",
	"usr/lib/python3.11/lib-dynload/_ssl_x.cpython-311-x86_64-linux-gnu.so":  "",
	"usr/lib/python3.11/lib-dynload/termios.cpython-311-x86_64-linux-gnu.so": "",
	"usr/bin/jq":          "",
	"var/lib/dpkg/status": "Package: poppler-utils\nStatus: install ok installed\nVersion: 1\n\nPackage: gone\nStatus: deinstall ok config-files\n\nPackage: mawk\nStatus: install ok installed\nProvides: awk (= 1), more\n",
}

func TestCheckBeforeARun(t *testing.T) {
	r := newRootfs(t, debian)
	for _, c := range []struct {
		name     string
		declared string // requirements.txt
		front    string
		scripts  map[string]string
		use      func(*Use)
		missing  []string
		strict   []string // missing if versions are strict
		warning  string
		system   []string
		version  string
		bad      string
		invalid  string // bad if versions are strict
	}{
		{name: "nothing"},
		{name: "there", declared: "pandas\npillow\nTyping.Extensions>=4\nPyYAML==6.*\nbare>=2\n"},
		{name: "too old", declared: "pandas>=2.0.0\npandas>=2.0.0\n", strict: []string{"pandas>=2.0.0 (installed: 1.5.3)"},
			warning: "skill 'demo' declares pandas>=2.0.0, but 1.5.3 is installed for system 3.11.2; for the declared version run: skillrun prepare demo"},
		{name: "too old and not there", declared: "pandas>=2.0.0\nnowhere\n", missing: []string{"nowhere"}, strict: []string{"pandas>=2.0.0 (installed: 1.5.3)", "nowhere"}},
		{name: "not there", declared: "nowhere>=1\nnowhere>=1\npandas\nold\n", missing: []string{"nowhere>=1", "old"}},
		{name: "of another platform", declared: "pywin32 ; sys_platform == 'win32'\n"},
		{name: "unknown marker", declared: "nowhere ; moon == 'full'\n", bad: "its environment marker is not valid"},
		{name: "kernel markers", declared: "nowhere ; platform_release == '0' and platform_version == '0'\n"},
		{name: "interpreter", declared: "python>=3.8\n"},
		{name: "another interpreter", declared: "python>=3.12\n", version: ">=3.12"},
		{name: "extras", declared: "pandas[excel]>=1\n"},
		{name: "standard library", declared: "json\ncsv\nsys\ntermios\n"},
		{name: "a backport of the standard library", declared: "json>=1\n"},
		{name: "not understood", declared: "==2\n../../requirements.txt\n", invalid: "is not valid",
			warning: `skill 'demo': requirements.txt:1: requirement "==2": is not valid; write it as in pandas>=2.0,<3`},
		{name: "not understood and not there", declared: "==2\nnowhere\n", missing: []string{"nowhere"}, invalid: "is not valid"},
		{name: "not understood, and bash", declared: "==2\n", use: func(u *Use) { u.RunsPython = false }},
		{name: "URL of what is there", declared: "pandas @ https://example.com/pandas.whl\n"},
		{name: "URL", declared: "nowhere @ git+https://example.com/nowhere\n", bad: "name a version instead"},
		{name: "bash", declared: "nowhere\n", use: func(u *Use) { u.RunsPython = false }},
		{name: "no Python at all", declared: "nowhere\n", use: func(u *Use) { u.Python = runtime.Runtime{} }},
		{name: "of another script", scripts: map[string]string{"scripts/a.py": "# /// script\n# dependencies = ['nowhere']\n# ///\n"}},
		{name: "of this script", scripts: map[string]string{"scripts/a.py": "# /// script\n# dependencies = ['nowhere']\n# ///\n"},
			use: func(u *Use) { u.Scripts = []string{"scripts/a.py"} }, missing: []string{"nowhere"}},
		{name: "requires-python", scripts: map[string]string{"scripts/a.py": "# /// script\n# requires-python = '>=3.12'\n# ///\n"},
			use: func(u *Use) { u.Scripts = []string{"scripts/a.py"} }, version: ">=3.12"},
		{name: "requires another's python", scripts: map[string]string{"scripts/a.py": "# /// script\n# requires-python = '>=3.12'\n# ///\n"}},
		{name: "system", front: "system_packages: [jq, poppler-utils, awk, 'jq>=1.6']\n"},
		{name: "no system", front: "system_packages: [gone, nowhere, nowhere, '!']\n", system: []string{"gone", "nowhere", "!"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"requirements.txt": c.declared}
			for name, text := range c.scripts {
				files[name] = text
			}
			u := Use{Tenant: "acme", Skill: newSkill(t, c.front, files), Python: python311, RunsPython: true}
			if c.use != nil {
				c.use(&u)
			}
			s := r.store()
			l, err := s.Acquire(u)
			var missing *PackagesError
			var system *SystemPackagesError
			var version *InterpreterError
			switch {
			case c.bad != "":
				var bad *RequirementError
				if !errors.As(err, &bad) || bad.File != "requirements.txt" || bad.Line != 1 || !strings.Contains(err.Error(), c.bad) {
					t.Errorf("got %v, want %s", err, c.bad)
				}
			case c.missing != nil:
				if !errors.As(err, &missing) || !slices.Equal(missing.Packages, c.missing) || missing.Python != "system 3.11.2" {
					t.Errorf("got %v, want %v", err, c.missing)
				}
			case c.system != nil:
				if !errors.As(err, &system) || !slices.Equal(system.Packages, c.system) || !strings.HasPrefix(system.Fix(), "apt-get install gone nowhere") {
					t.Errorf("got %v, want %v", err, c.system)
				}
			case c.version != "":
				if !errors.As(err, &version) || version.Want != c.version || version.Script != "scripts/a.py" && version.Script != "requirements.txt" {
					t.Errorf("got %v, want %s", err, c.version)
				}
			case err != nil:
				t.Errorf("got %v, want nil", err)
			}
			warned, wanted := warningsOf(l), []string(nil)
			if c.warning != "" {
				wanted = []string{c.warning}
			}
			if !slices.Equal(warned, wanted) {
				t.Errorf("warnings %q, want %q", warned, wanted)
			}
			l.Release()
			if l, again := s.Acquire(u); (again == nil) != (err == nil) || !slices.Equal(warningsOf(l), warned) {
				t.Errorf("again: got %v, want %v; warnings %q, want %q", again, err, warningsOf(l), warned)
			}
			s = r.store()
			s.config.StrictVersions = true
			l, strict := s.Acquire(u)
			if bad := (*RequirementError)(nil); c.invalid != "" {
				if !errors.As(strict, &bad) || bad.Line != 1 || !strings.Contains(strict.Error(), c.invalid) {
					t.Errorf("strict: got %v, want %s", strict, c.invalid)
				}
			} else if c.strict == nil {
				if (strict == nil) != (err == nil) || len(warningsOf(l)) > 0 {
					t.Errorf("strict: got %v, want %v; warnings %q", strict, err, warningsOf(l))
				}
			} else if !errors.As(strict, &missing) || !slices.Equal(missing.Packages, c.strict) {
				t.Errorf("strict: got %v, want %v", strict, c.strict)
			}
		})
	}
}

func warningsOf(l *Lease) []string {
	if l == nil {
		return nil
	}
	return l.Warnings
}

// A requirement that can't be parsed is an error, in the same words for an execution and for a
// build.
func TestUnreadableRequirements(t *testing.T) {
	s := newRootfs(t, debian).store()
	for text, want := range map[string]string{
		strings.Repeat("# x\n", 1<<18+1):          "requirements.txt: is 1048580 bytes long",
		"\xff\xfes\x00i\x00x\x00":                 "requirements.txt: is not UTF-8 text",
		"pandas\nsix" + strings.Repeat("x", 2000): "requirements.txt:2: requirement of 2003 bytes",
	} {
		sk := newSkill(t, "", map[string]string{"requirements.txt": text})
		_, run := s.Acquire(Use{Tenant: "acme", Skill: sk, Python: python311, RunsPython: true})
		_, build := s.newPlan(sk, runtime.Invocation{Python: python311})
		var bad *RequirementError
		if !errors.As(run, &bad) || build == nil || run.Error() != build.Error() || !strings.HasPrefix(run.Error(), want) {
			t.Errorf("got %v and %v, want %q", run, build, want)
		}
	}
}

// The result of a check is remembered until something is installed or removed.
func TestCheckIsRememberedUntilAChange(t *testing.T) {
	r := newRootfs(t, debian)
	s := r.store()
	u := Use{Tenant: "acme", Skill: newSkill(t, "", map[string]string{"requirements.txt": "pandas\n"}), Python: python311, RunsPython: true}
	if _, err := s.Acquire(u); err != nil {
		t.Fatal(err)
	}
	metadata := filepath.Join(r.dir, "usr/lib/python3/dist-packages/pandas-1.5.3.dist-info/METADATA")
	// A change inside a distribution goes unnoticed: package managers don't do that.
	if err := os.Remove(metadata); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(u); err != nil {
		t.Errorf("got %v, want what was remembered", err)
	}
	if err := os.RemoveAll(filepath.Dir(metadata)); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour) // the clock of a file system is coarse
	if err := os.Chtimes(filepath.Dir(filepath.Dir(metadata)), later, later); err != nil {
		t.Fatal(err)
	}
	var missing *PackagesError
	if _, err := s.Acquire(u); !errors.As(err, &missing) {
		t.Errorf("got %v, want pandas missing", err)
	}
}

// The skill's own virtual environment comes first.
func TestCheckLooksIntoTheVenv(t *testing.T) {
	r := newRootfs(t, debian)
	sk := newSkill(t, "", map[string]string{
		"requirements.txt": "pandas>=2\nmine\n", "venv/bin/python3": "-> /usr/bin/python3", "venv/pyvenv.cfg": "version = 3.11.2\n",
		"venv/lib/python3.11/site-packages/pandas-2.1.0.dist-info/METADATA": "Name: pandas\nVersion: 2.1.0\n",
		"venv/lib/python3.11/site-packages/mine-1.0.dist-info/METADATA":     "Name: mine\nVersion: 1.0\n",
		"venv/lib/python3.11/site-packages/deep/no-1.0.dist-info/METADATA":  "Name: no\nVersion: 1.0\n",
	})
	if _, err := r.store().Acquire(Use{Tenant: "acme", Skill: sk, Python: python311, RunsPython: true}); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestSitesOfAPythonInUsrLocal(t *testing.T) {
	r := newRootfs(t, map[string]string{
		"usr/lib/python3/dist-packages/pandas-1.5.3.dist-info/METADATA":       "Name: pandas\nVersion: 1.5.3\n",
		"usr/local/lib/python3.12/site-packages/numpy-2.0.dist-info/METADATA": "Name: numpy\nVersion: 2.0\n",
		"usr/local/lib/python3.12/csv.py":                                     "",
	})
	u := Use{Tenant: "acme", Skill: newSkill(t, "", map[string]string{"requirements.txt": "numpy\npandas\ncsv\n"}),
		Python: runtime.Runtime{Language: "python", Path: "/usr/local/bin/python3", Version: "3.12.1"}, RunsPython: true}
	var missing *PackagesError
	if _, err := r.store().Acquire(u); !errors.As(err, &missing) || !slices.Equal(missing.Packages, []string{"pandas"}) {
		t.Errorf("got %v, want pandas missing", err)
	}
}

// The embedded Python has nothing but its standard library.
func TestCheckOfTheEmbeddedPython(t *testing.T) {
	s := newStore(t, nil)
	for text, want := range map[string]bool{"json\nmath\nsqlite3\n": true, "pandas\n": false, "pip\n": false} {
		sk := newSkill(t, "", map[string]string{"requirements.txt": text})
		_, err := s.Acquire(useOf("acme", sk, python(t, sk, runtime.Embedded)))
		if (err == nil) != want {
			t.Errorf("%q: got %v, want there: %t", text, err, want)
		}
	}
}

// A module of the standard library is not remembered as missing if the library could not be read for a moment.
func TestLibraryThatCannotBeReadForAMoment(t *testing.T) {
	s := newRootfs(t, map[string]string{"usr/lib/python3.11/csv.py": ""}).store()
	inv := runtime.Invocation{Python: python311}
	scarcetest.WithoutDescriptors(t, func() {
		if is, err := s.inLibrary(inv, "csv"); is || !durable.MayPass(err) {
			t.Errorf("got %t, %v; want the error of the system", is, err)
		}
	})
	if is, err := s.inLibrary(inv, "csv"); !is || err != nil {
		t.Errorf("got %t, %v; want that it is there", is, err)
	}
}

// On a machine without dpkg no Debian package is reported as missing.
func TestSystemPackagesWithoutDpkg(t *testing.T) {
	r := newRootfs(t, map[string]string{"usr/bin/jq": ""})
	sk := newSkill(t, "system_packages: [poppler-utils, jq]\n", nil)
	if _, err := r.store().Acquire(Use{Tenant: "acme", Skill: sk}); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestCheckCantRead(t *testing.T) {
	r := newRootfs(t, map[string]string{"usr/lib/python3/dist-packages": "a file", "usr/x": ""})
	u := Use{Tenant: "acme", Skill: newSkill(t, "", map[string]string{"requirements.txt": "six\n"}), Python: python311, RunsPython: true}
	var missing *PackagesError
	if _, err := r.store().Acquire(u); err == nil || errors.As(err, &missing) {
		t.Errorf("got %v, want an error of ours", err)
	}
	r = newRootfs(t, map[string]string{"var/lib/dpkg/status": strings.Repeat("x", 1<<20+1), "usr/x": ""})
	u = Use{Tenant: "acme", Skill: newSkill(t, "system_packages: [jq]\n", nil)}
	var system *SystemPackagesError
	if _, err := r.store().Acquire(u); err == nil || errors.As(err, &system) {
		t.Errorf("got %v, want an error of ours", err)
	}
}

// An image and this machine have different packages of both kinds. An environment that is
// prepared for one does not serve the other.
func TestPackagesOfAnImage(t *testing.T) {
	s := newRootfs(t, map[string]string{"usr/bin/jq": "", "usr/lib/python3/dist-packages/six-1.16.0.egg-info": "", "var/lib/dpkg/status": ""}).store()
	image := func(name string, files map[string]string) runtime.Image {
		return runtime.Image{Name: name, Dir: newRootfs(t, files).dir, Digest: "sha256:" + name}
	}
	none := image("none", map[string]string{"var/lib/dpkg/status": ""})
	all := image("all", map[string]string{"bin/jq": "", "usr/lib/python3/dist-packages/six-1.16.0.egg-info": "", "var/lib/dpkg/status": ""})
	out := image("out", map[string]string{"usr/x": "", "var/lib/dpkg/status": ""})
	if err := os.Symlink(filepath.Join(s.config.Rootfs, "usr/lib/python3"), filepath.Join(out.Dir, "usr/lib")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(s.config.Rootfs, "usr/bin"), filepath.Join(out.Dir, "usr/bin")); err != nil {
		t.Fatal(err)
	}
	packages := newSkill(t, "", map[string]string{"requirements.txt": "six\n"})
	tools := newSkill(t, "system_packages: [jq]\n", nil)
	for _, tt := range []struct {
		image runtime.Image
		there bool
	}{{runtime.Image{}, true}, {none, false}, {all, true}, {out, false}, {runtime.Image{}, true}} {
		_, err := s.Acquire(Use{Tenant: "acme", Skill: packages, Python: python311, Image: tt.image, RunsPython: true})
		var missing *PackagesError
		if (err == nil) != tt.there || err != nil && (!errors.As(err, &missing) || missing.Python != "system 3.11.2 in image "+tt.image.Name) {
			t.Errorf("packages of %q: got %v, want them there: %t", tt.image.Name, err, tt.there)
		}
		_, err = s.Acquire(Use{Tenant: "acme", Skill: tools, Image: tt.image})
		var system *SystemPackagesError
		if (err == nil) != tt.there || err != nil && (!errors.As(err, &system) || !strings.Contains(err.Error(), "that image "+tt.image.Name+" lacks: jq. Put them into the image: apt-get install jq")) {
			t.Errorf("programs of %q: got %v, want them there: %t", tt.image.Name, err, tt.there)
		}
	}
	keys := map[string]bool{}
	for _, i := range []runtime.Image{{}, none, all} {
		keys[s.keyOf(runtime.Invocation{Python: python311, Image: i}, "six\n")] = true
	}
	if len(keys) != 3 {
		t.Errorf("keys of three root file systems: got %d", len(keys))
	}
}

func TestQuote(t *testing.T) {
	for name, want := range map[string]string{"demo-2.x_y": "demo-2.x_y", "a b": "'a b'", "it's": `'it'\''s'`, "-x": "'-x'", "": "''"} {
		if got := quote(name); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
	if got := manifest.NormalName("A_b"); got != "a-b" {
		t.Errorf("got %s", got)
	}
}

// BenchmarkAcquire measures the cost of a skill's packages for each execution: if the
// interpreter has them, and if they are prepared.
func BenchmarkAcquire(b *testing.B) {
	sk := newSkill(b, "system_packages: [jq]\n", map[string]string{"requirements.txt": "pandas\npillow\nPyYAML==6.*\n"})
	u := Use{Tenant: "acme", Skill: sk, Python: python311, RunsPython: true}
	for _, how := range []string{"by itself", "prepared"} {
		b.Run(how, func(b *testing.B) {
			s := newRootfs(b, debian).store()
			if how == "prepared" {
				p, err := s.newPlan(sk, runtime.Invocation{Python: python311})
				if err != nil {
					b.Fatal(err)
				}
				put(b, s, "acme", "a", 10)
				s.tenants["acme"].prepared[p.key] = "sha256:" + strings.Repeat("a", 64)
			}
			for b.Loop() {
				l, err := s.Acquire(u)
				if err != nil {
					b.Fatal(err)
				}
				l.Release()
			}
		})
	}
}
