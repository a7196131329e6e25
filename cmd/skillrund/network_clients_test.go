package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// writeFile writes a file of the public web server.
func (h *hosts) writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	path = filepath.Join(h.dir, "www", path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// archive returns a zip file.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Modified: time.Unix(1e9, 0)})
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// writeIndex writes an index of Python packages (PEP 503) with one wheel.
func (h *hosts) writeIndex(t *testing.T) {
	t.Helper()
	const wheel = "demo-1.0-py3-none-any.whl"
	h.writeFile(t, "simple/demo/index.html", []byte(`<!DOCTYPE html><a href="`+wheel+`">`+wheel+`</a>`))
	h.writeFile(t, "simple/demo/"+wheel, archive(t, map[string]string{
		"demo.py":                     "word = 'from pip'\n",
		"demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
		"demo-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"demo-1.0.dist-info/RECORD":   "demo.py,,\ndemo-1.0.dist-info/METADATA,,\ndemo-1.0.dist-info/WHEEL,,\ndemo-1.0.dist-info/RECORD,,\n",
	}))
}

// writeRegistry writes a registry of npm with one package.
func (h *hosts) writeRegistry(t *testing.T) {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for name, text := range map[string]string{"package/package.json": `{"name":"demo","version":"1.0.0"}`, "package/index.js": "module.exports = 'from npm'\n"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	h.writeFile(t, "demo-1.0.0.tgz", b.Bytes())
	sum := sha512.Sum512(b.Bytes())
	h.writeFile(t, "demo/index.json", fmt.Appendf(nil, `{"name":"demo","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"demo","version":"1.0.0",
		"dist":{"tarball":"https://npm.example/demo-1.0.0.tgz","integrity":"sha512-%s"}}}}`, base64.StdEncoding.EncodeToString(sum[:])))
}

// writeRepository writes a git repository that a web server serves as plain files.
func (h *hosts) writeRepository(t *testing.T) {
	t.Helper()
	makeRepository(t, h.dir)
	cmd := exec.Command("/bin/sh", "-c", "git -C repo.git update-server-info && cp -r repo.git www/repo.git && chmod -R a+rX www")
	cmd.Dir = h.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git: %v\n%s", err, out)
	}
}

// netclient builds the Go program only once. Without cgo it needs another build of the standard library, which takes long.
var netclient = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "skillrund-netclient-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "netclient")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "testdata/netclient/main.go")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("netclient: %w\n%s", err, out)
	}
	return os.ReadFile(path)
})

// writeNetclient writes the Go program into a skill.
func (h *hosts) writeNetclient(t *testing.T, skill string) {
	t.Helper()
	program, err := netclient()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(h.dir, "skills", skill, "bin")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "netclient"), program, 0o755)); err != nil {
		t.Fatal(err)
	}
}

// Programs that skills use reach real servers through their network. If the name or the address is not
// allowed, they end by themselves and say so: nothing waits for an answer that never comes. All of them have
// their default options.
func TestNetworkClients(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	h := startHosts(t, dir)
	h.writeIndex(t)
	h.writeRegistry(t)
	h.writeRepository(t)
	h.writeFetcher(t, "clients")
	h.writeNetclient(t, "clients")
	d := h.launch(t, `network: {allow: [web.example, pypi.example, npm.example, git.example]}
`)
	const environment = `cd /tmp; ca=$SKILL_DIR/ca.pem; export SSL_CERT_FILE=$ca NODE_EXTRA_CA_CERTS=$ca; `
	const noName, noAddress = "no name", "no address"
	for _, tt := range []struct {
		name, needs, host, run, want string
		refused, unresolved          string // patterns of the errors
		attempts                     uint64 // most connections to an address that is refused: clients that go on trying seem to hang
	}{
		{"curl", "/usr/bin/curl", "web.example", `curl -sS --cacert $ca https://HOST/`,
			"public web.example HTTP/2.0 \n", `Couldn't connect|Failed to connect|Connection refused`, `Could not resolve host`, 1},
		{"curl with HTTP", "/usr/bin/curl", "web.example", `curl -sS http://HOST/`,
			"public web.example HTTP/1.1 \n", `Couldn't connect|Failed to connect|Connection refused`, `Could not resolve host`, 1},
		{"urllib", "", "web.example", `python3 -c 'import urllib.request; print(urllib.request.urlopen("https://HOST/").read().decode(), end="")'`,
			"public web.example HTTP/1.1 \n", `Connection refused`, `Name or service not known|name resolution`, 1},
		// Debian's pip has requests in it.
		{"requests", "/usr/lib/python3/dist-packages/pip/_vendor/requests", "web.example",
			`/usr/bin/python3 -c 'import os; from pip._vendor import requests; print(requests.get("https://HOST/", verify=os.environ["SSL_CERT_FILE"]).text, end="")'`,
			"public web.example HTTP/1.1 \n", `Connection refused`, `Name or service not known|name resolution`, 1},
		{"node fetch", "/usr/bin/node", "web.example",
			`node -e 'fetch("https://HOST/").then(r => r.text()).then(t => process.stdout.write(t), e => { console.log(e.cause.code); process.exit(1) })'`,
			"public web.example HTTP/1.1 \n", `ECONNREFUSED`, `ENOTFOUND|EAI_AGAIN`, 1},
		{"Go net/http", "", "web.example", `$SKILL_DIR/bin/netclient get https://HOST/`,
			"200 public web.example HTTP/2.0 \n", `connection refused`, `server misbehaving|no such host`, 1},
		{"pip", "/usr/lib/python3/dist-packages/pip", "pypi.example",
			`/usr/bin/python3 -m pip install -q --disable-pip-version-check --no-cache-dir --cert $ca --target lib --index-url https://HOST/simple/ demo && PYTHONPATH=lib /usr/bin/python3 -c 'import demo; print(demo.word)'`,
			"from pip\n", `Connection refused`, `Name or service not known|name resolution`, 3},
		{"npm", "/usr/bin/npm", "npm.example",
			`npm install --cafile $ca --loglevel error --no-audit --no-fund --no-update-notifier --registry https://HOST/ demo >&2 && node -p 'require("demo")'`,
			"from npm\n", `ECONNREFUSED`, `ENOTFOUND|EAI_AGAIN`, 3},
		{"git", "/usr/bin/git", "git.example", `git -c http.sslCAInfo=$ca clone -q https://HOST/repo.git r && cat r/file`,
			"cloned\n", `Couldn't connect|Failed to connect|Connection refused`, `Could not resolve host`, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.t = t
			if _, err := os.Stat(tt.needs); tt.needs != "" && err != nil {
				t.Skip("not installed: ", tt.needs)
			}
			run := func(host string) *result {
				req := shell("clients", environment+strings.ReplaceAll(tt.run, "HOST", host))
				req.Limits = &pb.ExecutionLimits{MemoryBytes: 1 << 30, Processes: 128}
				return d.run(wall(req, patience))
			}
			r := run(tt.host)
			r.wantExit(t, 0)
			r.wantStdout(t, tt.want)
			if c := r.outcome.Usage.Network.GetConnections(); len(c) == 0 || c[0].Name != tt.host || r.outcome.Evidence.NetworkDeniedCount != 0 {
				t.Errorf("connections: %v, evidence: %v", c, r.outcome.Evidence)
			}
			for what, c := range map[string]struct{ host, pattern, missing string }{
				noName:    {"other.example", tt.unresolved, `"other.example"`},
				noAddress: {otherHost, tt.refused, `"` + otherHost},
			} {
				r := run(c.host)
				if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_EXITED || r.outcome.GetExitCode() == 0 {
					t.Errorf("%s: ended as %v", what, r.outcome)
				}
				if text := r.stdout.String() + r.stderr.String(); !regexp.MustCompile(c.pattern).MatchString(text) {
					t.Errorf("%s: it says %s", what, text)
				}
				if got := r.outcome.Evidence.NetworkDeniedCount; what == noAddress && got > tt.attempts {
					t.Errorf("%s: %d attempts, want at most %d", what, got, tt.attempts)
				}
				if r.outcome.Evidence.NetworkDeniedCount == 0 || !strings.Contains(r.outcome.Advice, c.missing) {
					t.Errorf("%s: %d refusals, advice %q", what, r.outcome.Evidence.NetworkDeniedCount, r.outcome.Advice)
				}
			}
		})
	}
	for _, name := range []string{"other", "private", "metadata"} {
		if got := h.seen(t, name); got != "" {
			t.Errorf("the host %s got %q", name, got)
		}
	}
}
