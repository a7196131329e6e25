package main

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/wellknown"
)

// skills add takes a skill of a real HTTPS server, pins it, and refuses another digest and a host that
// the policy does not allow.
func TestSkillsAdd(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	authority := certtest.NewAuthority(t, "authority")
	text := "---\nname: published\ndescription: Comes from an index.\n---\nDo it.\n"
	lies := false
	host := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case wellknown.Path:
			digest := sha256.Sum256([]byte(text))
			if lies {
				digest = sha256.Sum256(nil)
			}
			fmt.Fprintf(w, `{"$schema": %q, "skills": [{"name": "published", "type": "skill-md", "description": "d", "url": "p/SKILL.md", "version": "1.0.0", "digest": "sha256:%x"}]}`, wellknown.Schema, digest)
		case "/empty.json":
			fmt.Fprintf(w, `{"$schema": %q, "skills": []}`, wellknown.Schema)
		case "/bad.json", "/other.json": // the name in the index is not the skill's
			name := map[string]string{"/bad.json": "a/b", "/other.json": "other"}[r.URL.Path]
			fmt.Fprintf(w, `{"$schema": %q, "skills": [{"name": %q, "type": "skill-md", "description": "d", "url": "/.well-known/agent-skills/p/SKILL.md", "digest": "sha256:%x"}]}`,
				wellknown.Schema, name, sha256.Sum256([]byte(text)))
		case "/.well-known/agent-skills/p/SKILL.md":
			fmt.Fprint(w, text)
		default:
			http.NotFound(w, r)
		}
	}))
	host.TLS = &tls.Config{Certificates: []tls.Certificate{authority.Server("host").TLS()}}
	host.StartTLS()
	defer host.Close()
	d := startDaemonIn(t, dir, "snapshots: {sources: [\"127.*\"]}\n")
	ca := authority.WriteRoots(filepath.Join(dir, "ca.crt"))
	lock := filepath.Join(dir, "skillrun.lock.json")
	add := func(more ...string) (string, error) {
		cmd := d.cli(append([]string{"skills", "add", "--lock", lock}, more...)...)
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+ca, "SSL_CERT_DIR=/nonexistent")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	// A lock file that cannot be written is known before anything is pushed.
	nowhere := filepath.Join(dir, "no", "skillrun.lock.json")
	out, err := add(host.URL, "--lock", nowhere)
	if err == nil || !strings.Contains(out, "--lock "+nowhere+": no such file or directory") || strings.Contains(out, "published@") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = add(host.URL, "published")
	if err != nil || !strings.Contains(out, "published@sha256:") {
		t.Fatalf("%v\n%s", err, out)
	}
	pins, err := os.ReadFile(lock)
	if err != nil || !strings.Contains(string(pins), fmt.Sprintf("%x", sha256.Sum256([]byte(text)))) || !strings.Contains(string(pins), `"version": "1.0.0"`) {
		t.Errorf("got %s, %v", pins, err)
	}
	versions, err := d.cli("skills", "versions", "published").CombinedOutput()
	if err != nil || !strings.Contains(string(versions), host.URL+wellknown.Path) {
		t.Errorf("%v\n%s", err, versions)
	}
	refuse := func(want string, more ...string) {
		t.Helper()
		if out, err := add(more...); err == nil || !strings.Contains(out, want) || strings.Contains(out, "rpc error") {
			t.Errorf("got %v, want %q\n%s", err, want, out)
		}
	}
	text += "And more.\n"
	refuse("add --update", host.URL)
	if out, err := add("--update", host.URL); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	lies = true
	refuse("nothing was installed", "--update", host.URL)
	lies = false
	refuse("has no skill", host.URL, "another")
	if out, err := add(host.URL + "/empty.json"); err != nil || !strings.Contains(out, host.URL+"/empty.json names no skills") {
		t.Errorf("%v\n%s", err, out)
	}
	refuse("the skill's name in the index: Invalid skill name: 'a/b'", host.URL+"/bad.json")
	refuse("must match skill name 'published' (SKILL_INVALID)", host.URL+"/other.json")
	refuse("want https://", strings.Replace(host.URL, "https", "http", 1))
	refuse("SKILL_SOURCE_NOT_ALLOWED", strings.Replace(host.URL, "127.0.0.1", "localhost", 1))
}
