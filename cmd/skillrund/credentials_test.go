package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/certtest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// An apiServer is a server on port 443 of the internet. It answers with the hash of the credential that it
// got, so that no output has the secret. expired.example has a certificate that has expired.
type apiServer struct {
	dir string
}

func hashOf(secret string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(secret)))[:16] }

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := "none"
	if v := r.Header.Get("Authorization"); v != "" {
		got = hashOf(v)
	}
	switch {
	case r.URL.Path == "/redirect":
		http.Redirect(w, r, "https://other.example/", http.StatusFound)
	case strings.HasPrefix(r.URL.Path, "/repo.git/"):
		if got != hashOf("Bearer first-s3cr3t") {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		(&cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Env: []string{"GIT_PROJECT_ROOT=" + a.dir, "GIT_HTTP_EXPORT_ALL=1"},
			InheritEnv: []string{"PATH"}, Stderr: io.Discard, Logger: log.New(io.Discard, "", 0)}).ServeHTTP(w, r)
	default:
		fmt.Fprintf(w, "%s %s\n", r.Host, got)
	}
}

// serveAPI starts the server, and writes the file of its authority.
func serveAPI(t *testing.T, n *namespace, dir string) {
	t.Helper()
	authority := certtest.NewAuthority(t, "authority of the test")
	authority.WriteRoots(filepath.Join(dir, "api.pem"))
	pair := func(notAfter time.Time, names ...string) *tls.Certificate {
		c := authority.Client("api", func(c *x509.Certificate) {
			c.DNSNames, c.NotAfter, c.ExtKeyUsage = names, notAfter, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}).TLS()
		return &c
	}
	valid, expired := pair(time.Now().Add(time.Hour), "api.example", "other.example"), pair(time.Now().Add(-time.Minute), "expired.example")
	var l net.Listener
	n.do(t, func() (err error) {
		l, err = net.Listen("tcp", webAddress+":443")
		return err
	})
	s := &http.Server{Handler: &apiServer{dir}, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if h.ServerName == "expired.example" {
				return expired, nil
			}
			return valid, nil
		},
	}}
	go s.ServeTLS(l, "", "")
	t.Cleanup(func() { s.Close() })
}

// makeRepository makes dir/repo.git with one commit.
func makeRepository(t *testing.T, dir string) {
	t.Helper()
	const script = `git init -q --bare -b main repo.git && git clone -q repo.git work 2>/dev/null && cd work && echo cloned >file && git add file &&
git -c user.name=t -c user.email=t@example.org commit -qm one && git push -q origin HEAD:main && cd ../repo.git && git config http.getanyfile true`
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git: %v\n%s", err, out)
	}
}

// searchForSecret looks for the secret, which comes reversed, in all that a script can read.
const searchForSecret = `
import os, sys, urllib.request
needle = sys.argv[1][::-1].encode()
urllib.request.urlopen("https://api.example/").read()
found = []
def look(path):
    try:
        with open(path, "rb") as f:
            if needle in f.read(4 << 20): found.append(path)
    except OSError: pass
for top in ("/opt", "/workspace", "/skills", "/home", "/tmp", "/run", "/etc", "/dev/shm"):
    for d, _, names in os.walk(top):
        for n in names: look(os.path.join(d, n))
for pid in os.listdir("/proc"):
    if pid.isdigit():
        for n in ("environ", "cmdline", "mountinfo", "maps"): look("/proc/%s/%s" % (pid, n))
if any(needle.decode() in k + v for k, v in os.environ.items()): found.append("environment")
print(found)
`

// Real programs reach the bound domain with the credential, and no other domain. The script does not have the
// secret, and neither have the daemon's files and processes.
func TestNetworkCredentials(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	internet, machine := newNamespace(t), newNamespace(t)
	connect(t, machine, daemonAddress+"/24", internet, webAddress+"/24")
	serveWeb(t, internet)
	serveAPI(t, internet, dir)
	makeRepository(t, dir)
	secret := filepath.Join(dir, "secret")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(secret+".new", []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(secret+".new", secret); err != nil {
			t.Fatal(err)
		}
	}
	write("first-s3cr3t")
	for _, name := range []string{"online", "stranger"} {
		writeSkill(t, dir, name, "network_access: true", map[string]string{"scripts/search.py": searchForSecret, "scripts/ask.py": ask})
	}
	d := launchIn(t, dir, fmt.Sprintf(`
network:
  allow: ["*.example"]
  credentials:
    - {name: api, domain: api.example, value: "Bearer {secret}", secret: {file: %[1]s/secret}, ca_file: %[1]s/api.pem, "skills": [online]}
    - {name: expired, domain: expired.example, secret: {file: %[1]s/secret}, ca_file: %[1]s/api.pem, "skills": [online]}
`, dir), machine)
	want := func(t *testing.T, name string, req *pb.ExecuteRequest, out string) *result {
		t.Helper()
		d.t = t
		r := d.run(req)
		if got := r.stdout.String(); got != out {
			t.Errorf("%s: got %q, %q", name, got, r.stderr.String())
		}
		return r
	}
	with := "api.example " + hashOf("Bearer first-s3cr3t") + "\n"
	for _, tt := range []struct{ name, needs, run, out string }{
		{"curl", "/usr/bin/curl", "curl -sS https://api.example/", with},
		{"curl with HTTP/1.1", "/usr/bin/curl", "curl -sS --http1.1 https://api.example/", with},
		{"a header of the script", "/usr/bin/curl", "curl -sS -H 'authorization: mine' https://api.example/", with},
		{"another domain", "/usr/bin/curl", "curl -skS https://other.example/", "other.example none\n"},
		{"another Host", "/usr/bin/curl", "curl -sS -o /dev/null -w '%{http_code}\n' -H 'Host: other.example' https://api.example/", "421\n"},
		{"another server name", "/usr/bin/curl", "getent hosts other.example >/dev/null; curl -skS --connect-to other.example:443:api.example:443 -H 'Host: api.example' https://other.example/", "api.example none\n"},
		{"plain HTTP", "/usr/bin/curl", "curl -sS http://api.example/", "hello, api.example\n"},
		{"a redirect", "/usr/bin/curl", "curl -skLS https://api.example/redirect", "other.example none\n"},
		{"expired", "/usr/bin/curl", "curl -sS https://expired.example/ | grep -o 'certificate of expired.example is not valid'", "certificate of expired.example is not valid\n"},
		{"urllib", "", `python3 -c 'import urllib.request; print(urllib.request.urlopen("https://api.example/").read().decode(), end="")'`, with},
		// Debian's pip has requests in it, with the same variables.
		{"requests", "/usr/lib/python3/dist-packages/pip/_vendor/requests", `/usr/bin/python3 -c 'from pip._vendor import requests; print(requests.get("https://api.example/").text, end="")'`, with},
		{"node", "/usr/bin/node", `node -e 'fetch("https://api.example/").then(r => r.text()).then(t => process.stdout.write(t))'`, with},
		{"git", "/usr/lib/git-core/git-http-backend", "git clone -q https://api.example/repo.git /tmp/r && cat /tmp/r/file", "cloned\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := os.Stat(tt.needs); tt.needs != "" && err != nil {
				t.Skip("not installed: ", tt.needs)
			}
			want(t, tt.name, shell("online", tt.run), tt.out)
		})
	}
	t.Run("the script", func(t *testing.T) {
		r := want(t, "search", wall(script("online", "scripts/search.py", "t3rc3s-tsrif"), patience), "[]\n")
		if c := r.outcome.Usage.Network.GetConnections(); len(c) != 1 || fmt.Sprint(c[0].Credentials) != "[api]" {
			t.Errorf("usage: %v", c)
		}
		shown, err := exec.Command(binary(t, "skillrun"), "--address", "unix://"+dir+"/s.sock", "show", r.id).CombinedOutput()
		if err != nil || !strings.Contains(string(shown), ", credentials api\n") {
			t.Errorf("show: %v\n%s", err, shown)
		}
	})
	t.Run("another skill", func(t *testing.T) {
		r := want(t, "stranger", shell("stranger", "curl -skS https://api.example/; echo $SSL_CERT_FILE; ls /opt/certificates 2>&1 | grep -c ca-cert"), "api.example none\n\n0\n")
		if c := r.outcome.Usage.Network.GetConnections(); len(c) != 1 || len(c[0].Credentials) != 0 {
			t.Errorf("usage: %v", c)
		}
	})
	t.Run("rotation", func(t *testing.T) {
		write("second-s3cr3t")
		want(t, "rotation", shell("online", "curl -sS https://api.example/"), "api.example "+hashOf("Bearer second-s3cr3t")+"\n")
	})
	t.Run("unreadable", func(t *testing.T) {
		d.t = t
		if err := os.Remove(secret); err != nil {
			t.Fatal(err)
		}
		_, err := d.try(shell("online", "true"))
		wantStatus(t, err, "FailedPrecondition", "CREDENTIAL_UNAVAILABLE")
		if strings.Contains(err.Error(), dir) {
			t.Errorf("the caller learns a path: %v", err)
		}
		want(t, "stranger", shell("stranger", "echo runs"), "runs\n")
		req := shell("online", "echo offline")
		req.NetworkRules = &pb.NetworkRules{Allow: []string{"none"}}
		want(t, "without a network", req, "offline\n")
	})
	d.t = t
	for _, pid := range helpers(t, machine) {
		for _, file := range []string{"environ", "cmdline"} {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)); err != nil || bytes.Contains(b, []byte("s3cr3t")) {
				t.Errorf("helper: %s has the secret, or %v", file, err)
			}
		}
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.HasPrefix(path, filepath.Join(dir, "state/python")) {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && (bytes.Contains(b, []byte("first-s3cr3t")) || bytes.Contains(b, []byte("second-s3cr3t"))) {
			t.Errorf("%s has the secret", path)
		}
		return nil
	})
	if left, _ := filepath.Glob(filepath.Join(dir, "state/staging/*")); len(left) > 0 {
		t.Errorf("left in the staging directory: %v", left)
	}
}
