package environment

import (
	"archive/zip"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
)

// entry adds an entry with a mode that no honest wheel has.
func entry(name string, mode fs.FileMode, data string) func(*zip.Writer) {
	return func(z *zip.Writer) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(mode)
		w, _ := z.CreateHeader(h)
		w.Write([]byte(data))
	}
}

// A wheel is a stranger's archive. Its files end up only in the environment, as plain files.
func TestHostileWheels(t *testing.T) {
	t.Parallel()
	outside := filepath.Join("/tmp", "skillrun-escaped")
	for _, c := range []struct {
		name string
		raw  func(*zip.Writer)
		edit func(*Config)
		err  string // empty: it is built, and harmless
	}{
		{name: "path that leaves", raw: entry("../../../../../tmp/skillrun-escaped", 0o644, "x"), err: "pip: "},
		{name: "absolute path", raw: entry("/tmp/skillrun-escaped", 0o644, "x"), err: "pip: "},
		{name: "link out", raw: entry("evil_link", fs.ModeSymlink|0o777, "/etc/shadow")},
		{name: "setuid", raw: entry("skevil-1.0.data/scripts/suid", fs.ModeSetuid|0o4755, "#!/bin/sh\n")},
		{name: "own python", raw: entry("skevil-1.0.data/scripts/python3", 0o755, "#!/bin/sh\necho evil\n")},
		{name: "file in the place of bin", raw: entry("skevil-1.0.data/data/bin", 0o644, "x"), err: `it can't be used: "bin" is not a directory`},
		{name: "device", raw: entry("evil_device", fs.ModeDevice|0o666, "")},
		{name: "huge", raw: entry("zeroes", 0o644, strings.Repeat("\x00", 20<<20)), edit: func(c *Config) { c.Bytes = 16 << 20 }, err: "more than 16777216 bytes"},
		{name: "more than the memory", raw: entry("zeroes", 0o644, strings.Repeat("\x00", 300<<20)), edit: func(c *Config) { c.MemoryBytes = 256 << 20 }, err: "environment of skill"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newIndex(t, pkg{name: "skevil", version: "1.0", files: map[string]string{"skevil.py": "x=1\n"}, raw: c.raw})
			s := newStore(t, func(cfg *Config) {
				x.from(cfg)
				if c.edit != nil {
					c.edit(cfg)
				}
			})
			sk := newSkill(t, "python_packages: [skevil]\n", nil)
			env, log, err := prepare(t, s, "acme", sk, runtime.System)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("got %v, want %q\n%s", err, c.err, log)
			}
			if _, err := os.Lstat(outside); err == nil {
				t.Errorf("%s is there", outside)
			}
			if got := leftIn(t, s); len(got) > 0 {
				t.Errorf("left behind: %v", got)
			}
			if err != nil {
				return
			}
			k := s.taken("acme", s.keyFor(t, sk, python(t, sk, runtime.System)))
			defer s.release(k)
			walkErr := filepath.WalkDir(k.root(), func(p string, d fs.DirEntry, err error) error {
				if to, err := os.Readlink(p); err == nil && to == "/usr/bin/python3" && pythonProgram.MatchString(strings.TrimPrefix(p, k.root()+"/")) {
					return nil // the daemon's own link to the interpreter
				}
				fi, ierr := d.Info()
				if err = errors.Join(err, ierr); err != nil {
					return err
				}
				if kind := fi.Mode() &^ fs.ModePerm; kind != 0 && kind != fs.ModeDir || fi.Mode()&0o022 != 0 {
					t.Errorf("%s: %v", p, fi.Mode())
				}
				if strings.HasPrefix(filepath.Base(p), "python3") && strings.HasSuffix(filepath.Dir(p), "/bin") {
					t.Errorf("%s would pass for the interpreter", p)
				}
				return nil
			})
			if walkErr != nil || env.Digest == "" {
				t.Errorf("%v, %+v", walkErr, env)
			}
		})
	}
}

// backend is an in-tree build backend whose code runs in the build.
const backend = `
import os, socket, shutil, sys, glob
def attack():
    def can(what, f):
        try:
            f()
            print("CAN", what, file=sys.stderr)
        except Exception as e:
            print("CANNOT", what, type(e).__name__, file=sys.stderr)
    can("read shadow", lambda: open("/etc/shadow").read())
    can("reach the host", lambda: socket.create_connection(("ADDRESS", PORT), 2))
    can("reach metadata", lambda: socket.create_connection(("169.254.169.254", 80), 2))
    can("resolve", lambda: socket.getaddrinfo("example.com", 80))
    can("see the store", lambda: os.listdir("STORE"))
    can("write pip", lambda: open("/opt/pip/x", "w"))
    can("write inputs", lambda: open("/opt/build/requirements.txt", "w"))
    can("write /usr", lambda: open("/usr/x", "w"))
    can("be root", lambda: os.setuid(0))
    can("mount", lambda: os.chroot("/tmp"))
    can("make a device", lambda: os.mknod("/workspace/dev", 0o60666, os.makedev(8, 0)))
    can("see skills", lambda: os.listdir("/skills")[0])
    print("UID", os.getuid(), "ENV", sorted(k for k in os.environ if "SECRET" in k), file=sys.stderr)
    for fd in glob.glob("/proc/%d/fd/1" % os.getppid()):
        pass
def get_requires_for_build_wheel(config_settings=None):
    return []
def prepare_metadata_for_build_wheel(d, config_settings=None):
    info = os.path.join(d, "sksource-1.0.dist-info")
    os.makedirs(info)
    open(os.path.join(info, "METADATA"), "w").write("Metadata-Version: 2.1\nName: sksource\nVersion: 1.0\n")
    open(os.path.join(info, "WHEEL"), "w").write("Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    return "sksource-1.0.dist-info"
def build_wheel(d, config_settings=None, metadata_directory=None):
    attack()
    os.makedirs("/workspace/env", exist_ok=True)
    AFTER
    shutil.copy("ready.whl", os.path.join(d, "sksource-1.0-py3-none-any.whl"))
    return "sksource-1.0-py3-none-any.whl"
`

func source(x *index, s *Store, after string) {
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(x.URL, "http://"))
	code := strings.NewReplacer("ADDRESS", host, "PORT", port, "STORE", s.config.Dir, "AFTER", after).Replace(backend)
	name, data := pkg{name: "sksource", version: "1.0", files: map[string]string{"sksource.py": "x=1\n"}}.sdist(code)
	x.mu.Lock()
	x.files[name] = data
	x.mu.Unlock()
}

// Install code reaches nothing but the relay.
func TestInstallCodeIsConfined(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	s := newStore(t, func(c *Config) { x.from(c); c.Sdists = true })
	source(x, s, "pass")
	sk := newSkill(t, "python_packages: [sksource]\n", nil)
	// pip shows a backend's output only if the backend fails.
	source(x, s, `raise SystemExit("stop")`)
	_, log, err := prepare(t, s, "acme", sk, runtime.System)
	var failed *BuildError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want a build that fails\n%s", err, log)
	}
	if strings.Count(log, "CANNOT") != 12 || strings.Contains(log, " CAN ") || !strings.Contains(log, "UID 1000 ENV []") {
		t.Errorf("got %s", log)
	}
	source(x, s, "pass")
	if env := mustPrepare(t, s, "acme", sk, runtime.System); !slices.Equal(env.Packages, []string{"sksource==1.0"}) {
		t.Errorf("got %+v", env)
	}
}

// Wheels only, unless the configuration says otherwise.
func TestSourcesAreOffByDefault(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	s := newStore(t, x.from)
	source(x, s, "pass")
	sk := newSkill(t, "python_packages: [sksource]\n", nil)
	_, log, err := prepare(t, s, "acme", sk, runtime.System)
	if err == nil || strings.Contains(log, "CANNOT") {
		t.Errorf("got %v, want a refusal\n%s", err, log)
	}
}

// Files of install code that lie next to honest packages: no environment comes of them.
func TestHostileResults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ after, want string }{
		"a link out":              {`os.symlink("/etc/passwd", "/workspace/env/x")`, "a link that leads out"},
		"a link up":               {`os.symlink("../../../etc", "/workspace/env/x")`, "a link that leads out"},
		"a link through another":  {`os.makedirs("/workspace/env/a/b"); os.symlink("a/b", "/workspace/env/y"); os.symlink("y/../../..", "/workspace/env/x")`, "a link that leads out"},
		"another python":          {`os.makedirs("/workspace/env/a"); open("/workspace/env/a/python3", "w").close(); os.symlink("a", "/workspace/env/bin")`, `"bin" is not a directory`},
		"a pipe":                  {`os.mkfifo("/workspace/env/x")`, "a device, a pipe or a socket"},
		"too deep":                {`os.makedirs("/workspace/env/" + "d/" * 100)`, "deeper than"},
		"control characters":      {`open("/workspace/env/a\nb", "w")`, "control characters"},
		"a folder that is a link": {`import shutil; shutil.rmtree("/workspace/env"); os.makedirs("/workspace/other"); os.symlink("/workspace/other", "/workspace/env")`, "environment of skill 'demo': it can't be used: \"env\" is no directory"},
		"lying metadata":          {`i = "/workspace/env/lib/python3.11/site-packages/x-1.dist-info"; os.makedirs(i); open(i + "/METADATA", "w").write("Name: ../x\nVersion: 1\n")`, "without a valid name"},
		"no metadata":             {`os.makedirs("/workspace/env/lib/python3.11/site-packages/x-1.dist-info")`, "without readable METADATA"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t)
			s := newStore(t, func(c *Config) { x.from(c); c.Sdists = true })
			source(x, s, c.after)
			sk := newSkill(t, "python_packages: [sksource]\n", nil)
			_, log, err := prepare(t, s, "acme", sk, runtime.System)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q\n%s", err, c.want, log)
			}
			if got := leftIn(t, s); len(got) > 0 {
				t.Errorf("left behind: %v", got)
			}
		})
	}
}

// An index that stalls, lies, or is not there: a typed error, and nothing is left.
func TestIndexesThatFailABuild(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	defer close(hold)
	for _, c := range []struct {
		name  string
		index func(*index)
		check func(error) bool
	}{
		{"gone", func(x *index) { x.Close() }, unavailable("connection refused")},
		{"stalls", func(x *index) {
			x.handle = func(w http.ResponseWriter, r *http.Request) bool {
				select {
				case <-hold:
				case <-r.Context().Done():
				}
				return true
			}
		}, unavailable("")},
		{"redirects to metadata", func(x *index) {
			x.handle = func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
				return true
			}
		}, unavailable("redirects to another host")},
		{"lies about hashes", func(x *index) { x.hash = func(string, string) string { return strings.Repeat("0", 64) } }, func(err error) bool {
			var failed *BuildError
			return errors.As(err, &failed) && strings.Contains(err.Error(), "HASH")
		}},
		{"has no such package", func(x *index) { delete(x.files, "skbase-1.2.0-py3-none-any.whl") }, func(err error) bool {
			var none *NoPackageError
			return errors.As(err, &none) && none.Name == "skbase"
		}},
		{"has no such version", func(x *index) {
			delete(x.files, "skbase-1.2.0-py3-none-any.whl")
			name, data := pkg{name: "skbase", version: "0.1", files: map[string]string{"skbase.py": ""}}.wheel()
			x.files[name] = data
		}, func(err error) bool {
			var failed *BuildError
			return errors.As(err, &failed) && strings.Contains(err.Error(), "Could not find a version that satisfies the requirement skbase>=1 (from versions: 0.1)")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newIndex(t, base)
			c.index(x)
			s := newStore(t, x.from)
			if c.name == "stalls" { // others answer, if late on a busy machine
				s.stall = 300 * time.Millisecond
			}
			sk := newSkill(t, "python_packages: ['skbase>=1']\n", nil)
			_, log, err := prepare(t, s, "acme", sk, runtime.System)
			if err == nil || !c.check(err) {
				t.Errorf("got %v\n%s", err, log)
			}
			if got := leftIn(t, s); len(got) > 0 {
				t.Errorf("left behind: %v", got)
			}
		})
	}
}

func unavailable(text string) func(error) bool {
	return func(err error) bool {
		var failed *IndexError
		return errors.As(err, &failed) && strings.Contains(err.Error(), text)
	}
}

// Install code may outlive its package's build and spoil the files of other packages. Nothing
// of that reaches a skill that asked for the honest package only.
func TestInstallCodeSpoilsNobodyElse(t *testing.T) {
	t.Parallel()
	good := pkg{name: "skgood", version: "1.0", files: map[string]string{"skgood.py": "WHO = 'honest'\n"}}
	// The code of a process that outlived its build, for when pip is done.
	const spoil = `    import glob, importlib._bootstrap_external as b, importlib.util, shutil
    site = glob.glob("/workspace/env/lib/python3*/site-packages")[0]
    if os.path.exists(site + "/sksource.py"):
        source = open(site + "/skgood.py", "rb").read()
        cache = importlib.util.cache_from_source(site + "/skgood.py")
        os.makedirs(os.path.dirname(cache), exist_ok=True)
        open(cache, "wb").write(b._code_to_hash_pyc(compile("WHO = 'evil'", "skgood.py", "exec"), importlib.util.source_hash(source), False))
        for p in glob.glob(site + "/sksource*") if REMOVE else []:
            shutil.rmtree(p) if os.path.isdir(p) else os.remove(p)
`
	for name, remove := range map[string]bool{"leaves its files": false, "takes its files away": true} {
		t.Run(name, func(t *testing.T) {
			x := newIndex(t, good)
			s := newStore(t, func(c *Config) { x.from(c); c.Sdists = true })
			value := map[bool]string{false: "False", true: "True"}[remove]
			s.runner = []byte(strings.Replace(string(buildProgram), "    return 0 if done", strings.ReplaceAll(spoil, "REMOVE", value)+"    return 0 if done", 1))
			source(x, s, "pass")
			evil := newSkillNamed(t, "evil", "python_packages: [sksource, skgood]\n", nil)
			env, log, err := prepare(t, s, "acme", evil, runtime.System)
			var failed *BuildError
			switch {
			case remove && (!errors.As(err, &failed) || !strings.Contains(err.Error(), "it lacks sksource")):
				t.Errorf("got %v, want what is missing\n%s", err, log)
			case !remove && err != nil:
				t.Fatalf("%v\n%s", err, log)
			}
			s.runner = buildProgram
			honest := newSkillNamed(t, "honest", "python_packages: [skgood]\n", nil)
			got := mustPrepare(t, s, "acme", honest, runtime.System)
			if got.Digest == env.Digest {
				t.Errorf("got one digest, %s", got.Digest)
			}
			for _, sk := range []*skill.Skill{honest, evil} {
				inv := python(t, sk, runtime.System)
				l, err := s.Acquire(useOf("acme", sk, inv))
				if err != nil {
					if sk == evil && remove {
						continue
					}
					t.Fatal(err)
				}
				out, exit := run(t, sk, inv, l, "python3", "-c", "import skgood, os; print(skgood.WHO, os.path.exists(skgood.__cached__))")
				l.Release()
				if out != "honest True\n" || exit.Code != 0 {
					t.Errorf("%s: got %q, %+v", sk.Name, out, exit)
				}
			}
		})
	}
}

// A package that comes from a URL is named with the URL and the package that needs it.
func TestURLsOfDistributions(t *testing.T) {
	t.Parallel()
	const only = "; packages come from the daemon's index and wheels only: declare a version that needs no URL, or bring "
	for _, sdists := range []bool{false, true} {
		for _, url := range []string{"https://nowhere.example/skdep-1.0-py3-none-any.whl", "http://192.0.2.1/skdep-1.0.tar.gz", "git+https://nowhere.example/skdep"} {
			requires := []string{"skdep[extra] @ " + url + ` ; python_version > "3"`}
			x := newIndex(t, pkg{name: "skref", version: "1.0", requires: requires, files: map[string]string{"skref.py": ""}},
				pkg{name: "sk-top", version: "1.0", requires: []string{"skref"}, files: map[string]string{"sktop.py": ""}})
			s := newStore(t, func(c *Config) { x.from(c); c.Sdists = sdists })
			_, log, err := prepare(t, s, "acme", newSkill(t, "python_packages: [sk-top]\n", nil), runtime.System)
			failed, ok := errors.AsType[*BuildError](err)
			if want := "pip: skref needs skdep from " + url + only; !ok || !strings.HasPrefix(failed.Reason, want) {
				t.Errorf("%s, sdists %t: got %v, want %s\n%s", url, sdists, err, want, log)
			}
		}
	}
	nested := &tail{last: []byte("      Collecting hatch@ https://x.example/" + strings.Repeat("h", 1000) + "\n      ERROR: Could not install packages\n")}
	if got := nested.elsewhere(); !strings.HasPrefix(got, "a package needs hatch from https://x.example/hhh") || !strings.Contains(got, only) {
		t.Errorf("got %q", got)
	}
	for _, text := range []string{"Collecting skref>=1 (from sk-top)\nERROR: x\n", "x Collecting a @ https://x/\n"} {
		if got := (&tail{last: []byte(text)}).elsewhere(); got != "" {
			t.Errorf("%q: got %q", text, got)
		}
	}
}

// A wheel that names a dependency by a URL gets nothing from there, and above all no install
// code runs.
func TestDirectReferencesOfWheels(t *testing.T) {
	t.Parallel()
	wheels := hosttest.Dir(t)
	if err := os.Chmod(wheels, 0o755); err != nil {
		t.Fatal(err)
	}
	sdist, data := pkg{name: "srcdep", version: "1.0", files: map[string]string{"srcdep.py": ""}}.sdist(strings.NewReplacer("attack()", "pass", "AFTER", "print('RAN', file=sys.stderr); raise SystemExit('RAN')").Replace(backend))
	whl, wheelData := pkg{name: "whldep", version: "1.0", files: map[string]string{"whldep.py": ""}}.wheel()
	for name, data := range map[string][]byte{sdist: data, whl: wheelData} {
		if err := os.WriteFile(filepath.Join(wheels, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{
		"srcdep @ file:///opt/wheels/" + sdist: "install code may not run",
		"whldep @ file:///opt/wheels/" + whl:   "installed from a URL",
	} {
		x := newIndex(t, pkg{name: "skref", version: "1.0", requires: []string{file}, files: map[string]string{"skref.py": ""}})
		s := newStore(t, func(c *Config) { x.from(c); c.Wheels = wheels })
		_, log, err := prepare(t, s, "acme", newSkill(t, "python_packages: [skref]\n", nil), runtime.System)
		var failed *BuildError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), want) || strings.Contains(log, "RAN") {
			t.Errorf("%s: got %v, want %q\n%s", file, err, want, log)
		}
	}
}
