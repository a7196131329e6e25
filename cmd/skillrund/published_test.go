package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/wellknown"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// fetched is a document of the secured daemon's MCP listener, as a caller with a token gets it.
func (s *secured) fetched(path, token string) (status int, body string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, strings.TrimSuffix(s.mcp, "/mcp")+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: s.trust()}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

// published returns the paths of the artifacts in a caller's index, by name.
func (s *secured) published(token string) map[string]string {
	s.t.Helper()
	status, body := s.fetched(wellknown.Path, token)
	var index struct{ Skills []wellknown.Entry }
	if err := json.Unmarshal([]byte(body), &index); err != nil || status != http.StatusOK {
		s.t.Fatalf("got %d %.300s, %v", status, body, err)
	}
	paths := map[string]string{}
	for _, e := range index.Skills {
		paths[e.Name] = strings.TrimSuffix(wellknown.Path, "index.json") + e.URL
	}
	return paths
}

// One daemon publishes the skills of a tenant, and skills add brings them to another daemon, where they
// have the same digests and run. Another tenant's skills are in no other index, and a request for their
// artifacts is answered as if they did not exist.
func TestPublishedSkillsOfATenant(t *testing.T) {
	t.Parallel()
	from := startSecuredOn(t, "  skills_index: true", "").pushing()
	want := from.mustPush(from.acme, "say", "acme")
	from.mustPush(from.other, "secret", "globex")
	reader := from.token("create", "--tenant", "acme", "--name", "r", "--role", "read")
	others := from.token("create", "--tenant", "globex", "--name", "r", "--role", "read")

	to := startDaemon(t, "snapshots: {sources: [\"127.*\"]}\n")
	file := filepath.Join(to.dir, "index.token")
	if err := os.WriteFile(file, []byte(reader+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	host := strings.TrimSuffix(from.mcp, "/mcp")
	add := func(more ...string) (string, error) {
		cmd := to.cli(append([]string{"skills", "add", "--lock", filepath.Join(to.dir, "skillrun.lock.json"), host}, more...)...)
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+filepath.Join(from.dir, "ca.crt"), "SSL_CERT_DIR=/nonexistent")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	shared, err := from.about.GetSkill(from.acme, &pb.GetSkillRequest{Skill: "data-analysis"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := add("--index-token-file", file, "say", "data-analysis")
	if err != nil || !strings.Contains(out, "say@"+want) || !strings.Contains(out, "data-analysis@"+shared.GetSkill().GetDigest()) {
		t.Fatalf("%v, want say@%s and data-analysis@%s\n%s", err, want, shared.GetSkill().GetDigest(), out)
	}
	if out, err := to.cli("run", "say@"+want, "scripts/say.sh").CombinedOutput(); err != nil || string(out) != "acme\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := add("say"); err == nil || !strings.Contains(out, "401 Unauthorized") {
		t.Errorf("without a token: %v\n%s", err, out)
	}
	if out, err := add("--index-token-file", "/dev/null"); err == nil || !strings.Contains(out, "--index-token-file: /dev/null: want one line with a token") {
		t.Errorf("an empty token: %v\n%s", err, out)
	}
	if out, err := add("--index-token-file", file, "secret"); err == nil || !strings.Contains(out, "has no skill") {
		t.Errorf("another tenant's skill: %v\n%s", err, out)
	}

	own, foreign := from.published(reader), from.published(others)
	if own["say"] == "" || own["secret"] != "" || foreign["say"] != "" || foreign["secret"] == "" {
		t.Errorf("acme has %v, globex %v", own, foreign)
	}
	nobodys := strings.ReplaceAll(foreign["secret"], "secret", "nobody")
	status, body := from.fetched(foreign["secret"], reader)
	if unknown, text := from.fetched(nobodys, reader); status != http.StatusNotFound || unknown != status || strings.ReplaceAll(body, "secret", "nobody") != text {
		t.Errorf("another tenant's: %d %s; nobody's: %d %s", status, body, unknown, text)
	}
	for _, path := range []string{wellknown.Path, own["say"], nobodys} {
		for _, token := range []string{"", "sk_wrong"} {
			if status, body := from.fetched(path, token); status != http.StatusUnauthorized {
				t.Errorf("%s with the token %q: %d %s", path, token, status, body)
			}
		}
	}
	if status, _ := from.fetched(own["say"], reader); status != http.StatusOK {
		t.Errorf("its own artifact: %d", status)
	}
}
