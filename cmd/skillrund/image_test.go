package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"google.golang.org/grpc/status"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

var loaded = regexp.MustCompile(`(?m)(?:=> )?(/\S+) \(0x`)

// newTree makes a small root file system with this machine's bash, a few programs, and the
// libraries that they and the embedded Python need.
func newTree(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(newDir(t), "tree")
	put := func(path string) {
		b, err := os.ReadFile(path)
		to := filepath.Join(dir, path)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"bash", "cat", "ls", "id", "ldd"} {
		program = "/usr/bin/" + program
		put(program)
		libraries, err := exec.Command("ldd", program).CombinedOutput()
		if err != nil && !strings.Contains(string(libraries), "not a dynamic executable") {
			t.Fatalf("ldd %s: %v: %s", program, err, libraries)
		}
		for _, m := range loaded.FindAllStringSubmatch(string(libraries), -1) {
			put(m[1])
			if strings.HasPrefix(filepath.Base(m[1]), "libc.so") {
				for _, beside := range []string{"libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"} {
					put(filepath.Join(filepath.Dir(m[1]), beside))
				}
			}
		}
	}
	return dir
}

func writeTree(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, link := strings.CutPrefix(text, "-> "); link {
			err = errors.Join(err, os.Symlink(target, path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// layerOfTree returns a layer with all files beneath dir.
func layerOfTree(t testing.TB, dir string) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return static.NewLayer(b.Bytes(), types.OCIUncompressedLayer)
}

// layerOf returns a layer with these entries.
func layerOf(t testing.TB, entries ...*tar.Header) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := h.Uname // the test passes the content here; nothing reads the user's name
		h.Uname, h.Size = "", int64(len(text))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return static.NewLayer(b.Bytes(), types.OCIUncompressedLayer)
}

// A depot is a registry on loopback. before, if set, may answer a request first.
type depot struct {
	*httptest.Server
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func newDepot(t testing.TB) *depot {
	t.Helper()
	d := &depot{}
	behind := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before := d.before.Load(); before == nil || !(*before)(w, r) {
			behind.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(d.Close)
	return d
}

// push puts an image into the registry and returns its reference with the digest.
func (d *depot) push(t testing.TB, repository string, layers ...v1.Layer) string {
	t.Helper()
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: goruntime.GOARCH, RootFS: rootFSOf(t, img)}); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(strings.TrimPrefix(d.URL, "http://") + "/" + repository)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return ref.Context().Name() + "@" + digest.String()
}

func rootFSOf(t testing.TB, img v1.Image) v1.RootFS {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return c.RootFS
}

// TestImage runs scripts in an image from a registry and in a directory. Each language runs
// where the configuration says.
func TestImage(t *testing.T) {
	t.Parallel()
	depot := newDepot(t)
	tree := newTree(t)
	writeTree(t, tree, map[string]string{
		"usr/share/mark": "of the image", "usr/share/gone": "x", "etc/passwd": "evil:x:1000:1000::/:\n", "etc/app.conf": "its own",
		"etc/resolv.conf": "nameserver 10.0.0.1", "home/skill/.bash_profile": "echo evil", "opt/python/bin/python3": "evil",
	})
	reference := depot.push(t, "team/tools", layerOfTree(t, tree), layerOf(t,
		&tar.Header{Name: "usr/share/.wh.gone"},
		&tar.Header{Name: "usr/bin/suid", Typeflag: tar.TypeLink, Linkname: "usr/bin/id"},
		&tar.Header{Name: "bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"},
		&tar.Header{Name: "usr/bin/set", Mode: 0o6755, Uname: "x"},
	))
	bare := filepath.Join(newDir(t), "bare")
	writeTree(t, bare, map[string]string{"etc/motd": "nothing is here"})

	dir := newDir(t)
	writeSkill(t, dir, "demo", "allowed-tools: Bash(bash scripts/x.sh), Bash(cat:*), Bash(python3:*)", map[string]string{
		"scripts/x.sh": "cat /usr/share/mark; echo; echo made > out.txt; ls /usr/share/gone 2>/dev/null\nls $SKILL_DIR/scripts",
		"scripts/x.py": "import sys; print(sys.prefix)", "scripts/x.pl": "print 1", "scripts/x.rb": "puts 1",
	})
	writeSkill(t, dir, "venv", "", map[string]string{
		"scripts/x.py": "print(1)", "venv/pyvenv.cfg": "version = 3.7.1\n", "venv/bin/python3": "",
	})
	extra := fmt.Sprintf("images:\n  tools: {image: %q}\n  bare: {rootfs: %q}\n  unused: {rootfs: /none}\nruntimes: {bash: tools, python: tools, perl: bare}\n", reference, bare)
	d := startDaemonIn(t, dir, extra)

	for name, tt := range map[string]struct {
		req  *pb.ExecuteRequest
		want string
	}{
		"script":                {script("demo", "scripts/x.sh"), "of the image\nx.pl\nx.py\nx.rb\nx.sh\n"},
		"code":                  {shell("demo", "cat /etc/app.conf; ls /usr/bin/python3 /usr/bin/perl 2>/dev/null"), "its own"},
		"command":               {command("demo", "bash scripts/x.sh"), "of the image\nx.pl\nx.py\nx.rb\nx.sh\n"},
		"made-up files hold":    {shell("demo", "cat /etc/passwd | { read line; echo $line; }; cat /etc/resolv.conf; id"), "root:x:0:0:root:/:/usr/sbin/nologin\noptions timeout:1 attempts:1\nuid=1000(skill) gid=1000(skill) groups=1000(skill)\n"},
		"no bits but nine":      {shell("demo", "[[ -u /usr/bin/set || -g /usr/bin/set ]] || echo none; [[ -x /usr/bin/set ]] && echo x"), "none\nx\n"},
		"nothing is written":    {shell("demo", "for f in /usr/share/mark /x /etc/passwd /usr/x; do { : >> $f; } 2>/dev/null && echo $f; done; echo done"), "done\n"},
		"embedded Python":       {script("demo", "scripts/x.py"), "/opt/python\n"},
		"embedded, by a shell":  {shell("demo", "python3 -c 'print(open(\"/usr/share/mark\").read())'"), "of the image\n"},
		"the host's for others": {command("demo", "cat /etc/app.conf"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := d.run(tt.req)
			r.wantStdout(t, tt.want)
			if name == "script" && (len(r.outcome.Artifacts) != 1 || r.outcome.Artifacts[0].Path != "out.txt") {
				t.Errorf("artifacts: got %v, want out.txt", r.outcome.Artifacts)
			}
		})
	}
	for name, tt := range map[string]struct {
		req          *pb.ExecuteRequest
		reason, text string
	}{
		"no interpreter in the image": {script("demo", "scripts/x.pl"), "INTERPRETER_MISSING", "Interpreter 'perl' not found in PATH for x.pl in image bare"},
		"no Python for a venv":        {script("venv", "scripts/x.py"), "VENV_UNUSABLE", "in image tools"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.try(tt.req)
			wantStatus(t, err, "FailedPrecondition", tt.reason)
			if !strings.Contains(status.Convert(err).Message(), tt.text) {
				t.Errorf("got %v, want %s", err, tt.text)
			}
		})
	}
	t.Run("capabilities", func(t *testing.T) {
		c, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var images []string
		for _, i := range c.Images {
			images = append(images, fmt.Sprint(i.Name, " ", i.Source, " ", i.Runtimes))
		}
		if want := []string{"bare " + bare + " [perl]", "tools " + reference + " [python bash]"}; !slices.Equal(images, want) {
			t.Errorf("images: got %q, want %q", images, want)
		}
		if !slices.ContainsFunc(c.Runtimes, func(r *pb.Runtime) bool {
			return r.Image == "tools" && r.Language == "bash" && r.Path == "/usr/bin/bash" && strings.HasPrefix(r.Version, "5.")
		}) || !slices.ContainsFunc(c.Runtimes, func(r *pb.Runtime) bool { return r.Image == "" && r.Path == "/usr/bin/python3" }) {
			t.Errorf("runtimes: got %v", c.Runtimes)
		}
		out, err := d.cli("doctor").Output()
		if err != nil || !strings.Contains(string(out), "IMAGE") || !strings.Contains(string(out), reference) {
			t.Errorf("doctor: got %v: %s", err, out)
		}
	})
	d.stop()
	t.Run("once", func(t *testing.T) {
		depot.Close()
		d := startDaemonIn(t, dir, extra)
		d.run(script("demo", "scripts/x.sh")).wantExit(t, 0)
		if n := strings.Count(d.log.String(), "pulling an image"); n != 1 {
			t.Errorf("pulled %d times, want 1", n)
		}
		d.stop()
		// The daemon removes images that the configuration does not name.
		startDaemonIn(t, dir, "").stop()
		if left, err := filepath.Glob(filepath.Join(dir, "state/images/sha256-*")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestImageWithPython runs an interpreter of the image under every name that skills use, with
// the version that the image reports.
func TestImageWithPython(t *testing.T) {
	t.Parallel()
	tree := newTree(t)
	version, err := exec.Command("/usr/bin/python3", "-c", "import platform; print(platform.python_version())").Output()
	if err != nil {
		t.Fatal(err)
	}
	full := strings.TrimSpace(string(version))
	minor := full[:strings.LastIndexByte(full, '.')]
	// The interpreter of this machine, its standard library and its shared libraries.
	copyTree(t, "/usr/bin/python"+minor, filepath.Join(tree, "usr/bin/python"+minor))
	copyTree(t, "/usr/lib/python"+minor, filepath.Join(tree, "usr/lib/python"+minor))
	libraries, err := exec.Command("ldd", "/usr/bin/python"+minor).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range loaded.FindAllStringSubmatch(string(libraries), -1) {
		copyTree(t, m[1], filepath.Join(tree, m[1]))
	}
	writeTree(t, tree, map[string]string{
		"usr/bin/python3": "-> python" + minor, "usr/share/mark": "of the image",
		"usr/lib/python3/dist-packages/skfoo-1.5.dist-info/METADATA": "Metadata-Version: 2.1\nName: skfoo\nVersion: 1.5\n",
		"usr/lib/python3/dist-packages/skfoo.py":                     "NAME = 'foo of the image'",
	})
	dir := newDir(t)
	who := "import sys; print(sys.executable, open('/usr/share/mark').read())"
	writeSkill(t, dir, "demo", "allowed-tools: Bash(python:*), Bash(python3:*)", map[string]string{
		"scripts/x.py": who, "scripts/x": "#!/usr/bin/env python3\n" + who, "scripts/x.sh": "python -c \"" + who + "\"\n",
	})
	writeSkill(t, dir, "foo", "python_packages: [skfoo>=1.5]", map[string]string{"x.py": "import skfoo; print(skfoo.NAME)"})
	writeSkill(t, dir, "venv", "", map[string]string{
		"x.py": "import inside; print(inside.NAME)", "venv/pyvenv.cfg": "version = " + full + "\n", "venv/bin/python3": "",
		"venv/lib/python" + minor + "/site-packages/inside.py": "NAME = 'of the venv'",
	})
	d := startDaemonIn(t, dir, fmt.Sprintf("images: {snake: {rootfs: %q}}\nruntimes: {python: snake}\n", tree))
	for name, tt := range map[string]struct {
		req  *pb.ExecuteRequest
		want string
	}{
		"script":            {script("demo", "scripts/x.py"), "/usr/bin/python3 of the image\n"},
		"shebang":           {script("demo", "scripts/x"), "/usr/bin/python3 of the image\n"},
		"code":              {code("demo", who), "/usr/bin/python3 of the image\n"},
		"command":           {command("demo", "python scripts/x.py"), "/opt/skillrun/bin/python of the image\n"},
		"its own packages":  {script("foo", "x.py"), "foo of the image\n"},
		"a venv of its own": {script("venv", "x.py"), "of the venv\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := d.run(tt.req)
			r.wantExit(t, 0)
			r.wantStdout(t, tt.want)
		})
	}
	r := d.run(script("demo", "scripts/x.sh")) // runs on the host, which does not have the image's mark
	r.wantExit(t, 1)
	c, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
	if err != nil || !slices.ContainsFunc(c.Runtimes, func(r *pb.Runtime) bool {
		return r.Image == "snake" && r.Language == "python" && r.Path == "/usr/bin/python3" && r.Version == full
	}) {
		t.Errorf("got %v, %v, want Python %s of snake", c.GetRuntimes(), err, full)
	}
}

// copyTree copies a file, or a directory with its regular files.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // a dangling link
			return nil
		}
		return errors.Join(err, os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, b, 0o755))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// With an image as the default, shipped skills run on the embedded Python in the image, and
// environments are prepared in it.
func TestImageForAll(t *testing.T) {
	t.Parallel()
	tree := newTree(t)
	dir := newDir(t)
	index := packageIndex(t, func() {})
	writeSkill(t, dir, "greet", needsGreet, map[string]string{"scripts/greet.py": "import skgreet\nskgreet.say()\n"})
	writeSkill(t, dir, "strict", "python: system", map[string]string{"x.py": "print(1)"})
	packages := "environments: {index: \"" + index + "\"}\npython: embedded\n"
	req := script("greet", "scripts/greet.py")

	d := startDaemonIn(t, dir, packages)
	if _, stderr, code := prepareBy(t, d, "greet"); code != 0 {
		t.Fatalf("prepare: got %d, %s", code, stderr)
	}
	d.run(req).wantStdout(t, "hello from base\n")
	d.stop()

	d = startDaemonIn(t, dir, packages+fmt.Sprintf("images: {tools: {rootfs: %q}}\nruntimes: {default: tools}\n", tree))
	d.run(script("calculator", "scripts/calc.py", "6 * 7")).wantStdout(t, "42\n")
	// An environment that was prepared for another root file system does not count.
	_, err := d.try(req)
	wantStatus(t, err, "FailedPrecondition", "PACKAGES_MISSING")
	if info := errorInfo(err); !strings.HasSuffix(info["python"], " in image tools") || info["fix"] != "skillrun prepare greet" {
		t.Errorf("got %v", info)
	}
	stdout, stderr, code := prepareBy(t, d, "greet")
	if code != 0 || !strings.Contains(stdout, "in image tools") {
		t.Fatalf("prepare: got %d, %q, %q", code, stdout, stderr)
	}
	d.run(req).wantStdout(t, "hello from base\n")
	_, err = d.try(script("strict", "x.py"))
	wantStatus(t, err, "FailedPrecondition", "INTERPRETER_MISSING")
}

// A root file system that sandboxes can't use keeps the daemon from starting. The log says
// what to do.
func TestImageRefused(t *testing.T) {
	t.Parallel()
	depot := newDepot(t)
	host := strings.TrimPrefix(depot.URL, "http://")
	file := &tar.Header{Name: "etc/x", Mode: 0o644}
	good := depot.push(t, "good", layerOf(t, file))
	link := depot.push(t, "link", layerOf(t, file, &tar.Header{Name: "tmp", Typeflag: tar.TypeSymlink, Linkname: "var/tmp"}))
	hidden := depot.push(t, "hidden", layerOf(t, file, &tar.Header{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "."}, &tar.Header{Name: "a/proc", Typeflag: tar.TypeSymlink, Linkname: "/etc"}))
	out := depot.push(t, "out", layerOf(t, &tar.Header{Name: "../../../../evil"}))
	device := depot.push(t, "device", layerOf(t, &tar.Header{Name: "usr/disk", Typeflag: tar.TypeBlock}))
	bomb := depot.push(t, "bomb", layerOf(t, &tar.Header{Name: "big", Uname: strings.Repeat("x", 100_000)}))
	zeros := "@sha256:" + strings.Repeat("0", 64)
	pipe := filepath.Join(newDir(t), "pipe")
	writeTree(t, pipe, map[string]string{"tmp": "-> /var/tmp"})
	for _, tt := range []struct{ name, config, want string }{
		{"no digest", "images: {x: {image: \"" + host + "/good:latest\"}}\nruntimes: {default: x}\n", `"` + host + `/good:latest\" has no digest, so it could be another image tomorrow; write: ` + host + "/good:latest" + strings.TrimPrefix(good, host+"/good")},
		{"no digest, unused", "images: {x: {image: \"" + host + "/good\"}}\n", "has no digest"},
		{"no such digest", "images: {x: {image: \"" + host + "/good" + zeros + "\"}}\nruntimes: {default: x}\n", "images.x: image " + host + "/good" + zeros},
		{"nobody answers", "images: {x: {image: \"127.0.0.1:1/good" + zeros + "\"}}\nruntimes: {default: x}\n", "connection refused"},
		{"a reserved place is a link", "images: {x: {image: \"" + link + "\"}}\nruntimes: {default: x}\n", `root file system x: its /tmp is a link to \"var/tmp\"`},
		{"by a link", "images: {x: {image: \"" + hidden + "\"}}\nruntimes: {default: x}\n", `root file system x: its /proc is a link to \"/etc\"`},
		{"of a directory", "images: {x: {rootfs: \"" + pipe + "\"}}\nruntimes: {default: x}\n", `images.x.rootfs: its /tmp is a link`},
		{"an entry leads out", "images: {x: {image: \"" + out + "\"}}\nruntimes: {default: x}\n", "could lead out of the image"},
		{"a device", "images: {x: {image: \"" + device + "\"}}\nruntimes: {default: x}\n", "devices are not allowed in an image"},
		{"a bomb", "pull: {bytes: 50KiB}\nimages: {x: {image: \"" + bomb + "\"}}\nruntimes: {default: x}\n", "see pull.bytes"},
		{"a directory that is not there", "images: {x: {rootfs: none}}\nruntimes: {default: x}\n", "no such file or directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := newDir(t)
			d := launch(t, dir, tt.config)
			err := d.wait()
			said := d.log.String()
			if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(strings.ReplaceAll(said, `"`, `\"`), strings.ReplaceAll(strings.ReplaceAll(tt.want, `\"`, `"`), `"`, `\"`)) {
				t.Errorf("got %v: %s\nwant %s", err, said, tt.want)
			}
			left, err := filepath.Glob(filepath.Join(dir, "state/images/new-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			for _, evil := range []string{"/evil", filepath.Join(filepath.Dir(dir), "evil")} {
				if _, err := os.Lstat(evil); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %v", evil, err)
				}
			}
		})
	}
	t.Run("by --check", func(t *testing.T) {
		config := writeConfig(t, "images: {x: {image: \""+host+"/good\"}}\n")
		said, err := exec.Command(binary(t, "skillrund"), "--config", config, "--check").CombinedOutput()
		if err == nil || !strings.Contains(string(said), "write: "+good) {
			t.Errorf("got %v: %s", err, said)
		}
	})
}

// After a takeover, an image that the configuration no longer names is removed when the earlier daemon has ended: until
// then its executions run in it.
func TestImageAfterTakeover(t *testing.T) {
	t.Parallel()
	depot := newDepot(t)
	tree := newTree(t)
	writeTree(t, tree, map[string]string{"usr/share/mark": "of the image"})
	reference := depot.push(t, "tools", layerOfTree(t, tree))
	dir := newDir(t)
	writeSkill(t, dir, "demo", "", nil)
	extra := fmt.Sprintf("images: {tools: {image: %q}}\nruntimes: {bash: tools}\n", reference)
	d := startDaemonIn(t, dir, extra)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	_, s := d.waitsFor(ctx, shell("demo", "echo ready; read -r; cat /usr/share/mark"))
	d.rewrite(extra, "")
	next := d.takeOver()
	images := filepath.Join(dir, "state/images/sha256-*")
	if there, err := filepath.Glob(images); err != nil || len(there) == 0 {
		t.Errorf("an image in use was removed: %v", err)
	}
	if err := s.Send(&pb.ExecuteInteractiveRequest{Message: &pb.ExecuteInteractiveRequest_Stdin{Stdin: []byte("\n")}}); err != nil {
		t.Fatal(err)
	}
	readLine(t, s, "of the image")
	next.untilAlone(d)
	if left, err := filepath.Glob(images); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A daemon that is killed during a pull leaves nothing that the next daemon takes for an
// image.
func TestImageKilled(t *testing.T) {
	t.Parallel()
	depot := newDepot(t)
	tree := newTree(t)
	writeTree(t, tree, map[string]string{"usr/share/mark": "whole"})
	second := layerOf(t, &tar.Header{Name: "usr/share/second", Mode: 0o644, Uname: "second"})
	digest, err := second.Digest()
	if err != nil {
		t.Fatal(err)
	}
	reference := depot.push(t, "tools", layerOfTree(t, tree), second)
	reached := make(chan struct{}, 1)
	hold := func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, digest.String()) {
			return false
		}
		reached <- struct{}{}
		<-r.Context().Done()
		return true
	}
	depot.before.Store(&hold)
	dir := newDir(t)
	writeSkill(t, dir, "demo", "", nil)
	extra := fmt.Sprintf("images: {tools: {image: %q}}\nruntimes: {bash: tools}\n", reference)
	d := launch(t, dir, extra)
	<-reached
	d.kill()
	if left, err := filepath.Glob(filepath.Join(dir, "state/images/new-*")); err != nil || len(left) != 1 {
		t.Errorf("in the middle: got %v, %v, want one that is not finished", left, err)
	}
	depot.before.Store(nil)
	d = startDaemonIn(t, dir, extra)
	d.run(shell("demo", "cat /usr/share/mark /usr/share/second")).wantStdout(t, "wholesecond")
	if left, err := filepath.Glob(filepath.Join(dir, "state/images/new-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
