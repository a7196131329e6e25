package environment

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
	"github.com/skillrun/skillrun/sandbox"
)

// The tests of this package build in real sandboxes, from indexes on loopback.

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// newStore opens a store; edit may change its configuration.
func newStore(t *testing.T, edit func(*Config)) *Store {
	t.Helper()
	c := Config{Dir: filepath.Join(hosttest.Dir(t), "environments"), Host: hosttest.Host(t), Pip: hosttest.Pip(t), MemoryBytes: 1 << 30, Wall: 2 * time.Minute}
	if edit != nil {
		edit(&c)
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newSkill imports a skill "demo" of these files; front is its front matter.
func newSkill(t testing.TB, front string, files map[string]string) *skill.Skill {
	t.Helper()
	return newSkillNamed(t, "demo", front, files)
}

func newSkillNamed(t testing.TB, name, front string, files map[string]string) *skill.Skill {
	t.Helper()
	dir := hosttest.Dir(t)
	folder := filepath.Join(dir, "skills", name)
	all := map[string]string{"SKILL.md": "---\nname: " + name + "\ndescription: Shows things.\n" + front + "---\nDo it.\n"}
	for p, text := range files {
		all[p] = text
	}
	for p, text := range all {
		p = filepath.Join(folder, p)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			if err := os.Symlink(target, p); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := skill.OpenRegistry(t.Context(), skill.RegistryConfig{Roots: skill.Roots(filepath.Join(dir, "skills")), Dir: filepath.Join(dir, "snapshots"), Owner: skilltest.Owner()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	sk, err := r.Resolve(name)
	if err != nil {
		t.Fatal(err)
	}
	return sk
}

// python returns the Python of a kind that a skill runs on.
func python(t testing.TB, sk *skill.Skill, kind runtime.Python) runtime.Invocation {
	t.Helper()
	hosttest.Host(t) // skips the test without root
	inv, err := hosttest.Runtimes(t).WithEmbedded(hosttest.Python(t)).With(kind).ForCommand(sk, []string{"python3"})
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

// prepare builds an environment, and returns it with the build's output.
func prepare(t *testing.T, s *Store, tenant string, sk *skill.Skill, kind runtime.Python) (Environment, string, error) {
	t.Helper()
	var log bytes.Buffer
	env, err := s.Prepare(t.Context(), tenant, sk, python(t, sk, kind), false, func(p []byte) error { log.Write(p); return nil })
	return env, log.String(), err
}

func mustPrepare(t *testing.T, s *Store, tenant string, sk *skill.Skill, kind runtime.Python) Environment {
	t.Helper()
	env, log, err := prepare(t, s, tenant, sk, kind)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	return env
}

func useOf(tenant string, sk *skill.Skill, inv runtime.Invocation, scripts ...string) Use {
	u := Use{Tenant: tenant, Skill: sk, Python: inv.Python, RunsPython: true, Venv: inv.Venv, Scripts: scripts}
	for _, m := range inv.Mounts {
		if m.Target == runtime.EmbeddedDir {
			u.PythonRoot = m.Source
		}
	}
	return u
}

// run executes a program in a sandbox with a lease, as an execution would, and returns its
// output.
func run(t *testing.T, sk *skill.Skill, inv runtime.Invocation, l *Lease, args ...string) (string, sandbox.Exit) {
	t.Helper()
	spec := sandbox.Spec{
		ID:      fmt.Sprintf("run-%d", builds.Add(1)),
		Program: sandbox.Program{{Pipeline: []sandbox.Command{{Args: args}}}},
		Env: append(slices.Clone(l.Env), "HOME=/home/skill", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1",
			"PATH="+strings.Join(append(append(slices.Clone(l.Path), inv.Path...), "/usr/local/bin:/usr/bin:/bin:/opt/skillrun/bin"), ":")),
		Mounts: []sandbox.Mount{{Source: sk.Dir, Target: sk.BaseDir(), Owned: true}},
		Limits: sandbox.Limits{Wall: time.Minute},
	}
	for _, m := range append(slices.Clone(inv.Mounts), l.Mounts...) {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: m.Source, Target: m.Target})
	}
	var out bytes.Buffer
	p, err := hosttest.Host(t).Start(t.Context(), spec, sandbox.IO{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), exit
}

// A pkg is a distribution to make: its files, and what its metadata says.
type pkg struct {
	name, version string
	requires      []string
	entryPoint    string // "tool = mod:main"
	files         map[string]string
	raw           func(*zip.Writer) // adds what no honest wheel has
}

// wheel makes a wheel.
func (p pkg) wheel() (name string, data []byte) {
	info := fmt.Sprintf("%s-%s.dist-info/", strings.ReplaceAll(p.name, "-", "_"), p.version)
	files := map[string]string{
		info + "WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "METADATA": fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", p.name, p.version),
	}
	for _, r := range p.requires {
		files[info+"METADATA"] += "Requires-Dist: " + r + "\n"
	}
	if p.entryPoint != "" {
		files[info+"entry_points.txt"] = "[console_scripts]\n" + p.entryPoint + "\n"
	}
	for name, text := range p.files {
		files[name] = text
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	record := ""
	for _, name := range names {
		sum := sha256.Sum256([]byte(files[name]))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[name]))
		w, _ := z.Create(name)
		w.Write([]byte(files[name]))
	}
	w, _ := z.Create(info + "RECORD")
	w.Write([]byte(record + info + "RECORD,,\n"))
	if p.raw != nil {
		p.raw(z)
	}
	z.Close()
	return fmt.Sprintf("%s-%s-py3-none-any.whl", strings.ReplaceAll(p.name, "-", "_"), p.version), out.Bytes()
}

// sdist makes a source distribution whose build backend is backend.py.
func (p pkg) sdist(backend string) (name string, data []byte) {
	base := p.name + "-" + p.version
	_, wheel := p.wheel()
	files := map[string]string{
		"PKG-INFO":       fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", p.name, p.version),
		"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
		"backend.py":     backend,
		"ready.whl":      string(wheel),
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for name, text := range files {
		w.WriteHeader(&tar.Header{Name: base + "/" + name, Mode: 0o644, Size: int64(len(text))})
		w.Write([]byte(text))
	}
	w.Close()
	z.Close()
	return base + ".tar.gz", out.Bytes()
}

// An index is a simple index on loopback. It makes its pages from its files.
type index struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string][]byte // by name
	asked []string
	// handle, if set, answers first; true means that it has.
	handle func(http.ResponseWriter, *http.Request) bool
	// hash, if set, replaces the hash of a file's link.
	hash func(name, sum string) string
}

func newIndex(t *testing.T, packages ...pkg) *index {
	t.Helper()
	x := &index{files: map[string][]byte{}}
	for _, p := range packages {
		name, data := p.wheel()
		x.files[name] = data
	}
	x.Server = httptest.NewServer(http.HandlerFunc(x.serve))
	t.Cleanup(x.Server.Close)
	return x
}

func (x *index) url() string { return x.Server.URL + "/simple/" }

func (x *index) requests() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.asked)
}

func (x *index) serve(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	x.asked = append(x.asked, r.URL.Path)
	x.mu.Unlock()
	if x.handle != nil && x.handle(w, r) {
		return
	}
	if name, ok := strings.CutPrefix(r.URL.Path, "/files/"); ok {
		x.mu.Lock()
		data := x.files[name]
		x.mu.Unlock()
		if data == nil {
			http.NotFound(w, r)
			return
		}
		w.Write(data)
		return
	}
	project := path.Base(r.URL.Path)
	page := ""
	x.mu.Lock()
	for name, data := range x.files {
		have, _, _ := strings.Cut(name, "-")
		if manifest.NormalName(have) != project && !strings.HasPrefix(name, project+"-") {
			continue
		}
		sum := sha256.Sum256(data)
		h := hex.EncodeToString(sum[:])
		if x.hash != nil {
			h = x.hash(name, h)
		}
		page += fmt.Sprintf("<a href=\"../../files/%s#sha256=%s\">%s</a>\n", name, h, name)
	}
	x.mu.Unlock()
	if page == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, "<!DOCTYPE html><html><body>"+page+"</body></html>")
}

// from is the configuration that takes packages from an index.
func (x *index) from(c *Config) { c.Index = x.url() }

// Packages that tests share: top needs base and has a program.
var (
	base = pkg{name: "skbase", version: "1.2.0", files: map[string]string{"skbase.py": "NAME = 'base'\n"}}
	top  = pkg{name: "sk-top", version: "2.0", requires: []string{"skbase>=1"}, entryPoint: "sktop = sktop:main",
		files: map[string]string{"sktop/__init__.py": "import skbase\ndef main():\n    print('top on', skbase.NAME)\n"}}
)

// leftIn lists the entries of a store's directory that are not finished environments, after what Open removes.
func leftIn(t *testing.T, s *Store) []string {
	t.Helper()
	s.removal.Wait()
	var found []string
	entries, err := os.ReadDir(s.config.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			found = append(found, e.Name())
		}
	}
	return found
}

// logTo returns a logger into a buffer.
func logTo(b *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// taken is take for environments that can be read.
func (s *Store) taken(tenantName, key string) *kept {
	k, err := s.take(tenantName, key)
	if err != nil {
		panic(err)
	}
	return k
}
