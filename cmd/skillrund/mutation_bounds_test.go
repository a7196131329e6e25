package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A bound is a limit or a rule of the daemon that a case of the catalogue attacks. It is a constant
// or a line of the source. The daemon needs no switch for it: the test builds a daemon from a
// changed copy of the file.
type bound struct {
	file, from, to string // from occurs once in the file
	test, words    string // the case that must fail, without TestHostile, and words of its failure
}

// forkServer has the Python of the fork server.
const forkServer = "sandbox/internal/pyzygote/program/forkserver/"

// bounds are built in groups, to save builds. No bound of a group changes the failure that the
// words of another one name.
//
// Four bounds are missing here. Without them another bound still holds, in parentheses, so no case
// fails: the sessions of one principal (all sessions), compressed answers of an index (the size of
// a tag), the number of its files, and their content (both: the disk of the build). internal/mcp,
// internal/environment and sandbox test these four.
var bounds = map[string][]bound{
	"idle connections make no room": {
		{"internal/ingress/listener.go", "case o.requests > 0 || o.tenant != \"\":", "case true:", "API/api-23-connection-hogs", "a request of a caller who holds connections: "},
		{"internal/ingress/listener.go", "case o.requests > 0 || o.tenant != \"\":", "case true:", "API/api-24-crowd-of-hogs", "gRPC, TCP: a request from one more address: "},
		{"internal/ingress/listener.go", "case o.tenant == \"\" || own && !same:", "case true:", "API/api-24-crowd-of-hogs", "MCP, TCP: a request from one more address: "},
	},
	"no room for callers who have few connections": {
		{"internal/ingress/listener.go", "(own || l.peers[o.peer] <= l.peers[c.peer])", "true", "API/api-24-crowd-of-hogs", "gRPC, TCP: "},
	},
	"one caller takes all": {
		{"internal/ingress/listener.go", "MaxPeerUnidentified = 128", "MaxPeerUnidentified = 1 << 20", "API/api-23-connection-hogs", "the log has 0 lines about connections"},
		{"internal/ingress/listener.go", "own := l.members[m] >= l.limits.PeerConnections", "own := false", "API/api-25-connections-in-use", "one more of the caller: <nil>"},
		{"internal/ingress/listener.go", "HelloTimeout = 5 * time.Second", "HelloTimeout = time.Hour", "API/api-23-connection-hogs", "stays open"},
		{"internal/admission/tenant.go", "l.running == 0 && t.running < t.quota.Running+t.quota.Reserved", "false", "API/api-26-slot-hog", "execute: rpc error: code = DeadlineExceeded"},
	},
	"no bound": {
		{"internal/admission/tenant.go", "return t.queued < t.quota.Queued ||", "return true ||", "API/api-26-slot-hog", "want ResourceExhausted"},
		{"internal/mcp/limits.go", "maxTenantSessions    = 1024", "maxTenantSessions    = 1 << 20", "API/api-27-session-hogs", "want at most 1024 with the newest"},
		{"internal/mcp/limits.go", "maxSmall = 64 << 10", "maxSmall = 64 << 20", "API/api-27-session-hogs", "an initialize of 4 MiB: "},
		{"internal/mcp/lines.go", "release, err = func() {}, errNoRoom", "release = func() {}", "API/api-28-line-hogs", "the requests that it holds may have "},
		{"internal/ingress/budget/budget.go", "share = 8", "share = 1 << 40", "API/api-29-budget-hog", "request memory is full"},
		{"internal/environment/download/fetch.go", "MaxResponseHeaderBytes: 64 << 10", "MaxResponseHeaderBytes: 256 << 20", "API/api-30-lying-index", "headers: the daemon grew by "},
		{"internal/environment/download/fetch.go", "maxPageBytes  = 64 << 20", "maxPageBytes  = 1 << 40", "API/api-30-lying-index", "links: got "},
		{"internal/environment/download/page.go", "maxTag      = 256 << 10", "maxTag      = 256 << 20", "API/api-30-lying-index", "tag: the daemon grew by "},
		{"internal/environment/download/page.go", "maxLinks    = 100_000", "maxLinks    = 100_000_000", "API/api-30-lying-index", "list: got "},
	},
	"Python zygotes and rules": {
		{"internal/permission/files.go", "case ownedByGit(name):", "case false:", "API/api-31-around-the-rules", "--- FAIL: TestHostileAPI/api-31-around-the-rules/configuration_of_git "},
		{"internal/permission/guards.go", "return guards[name].danger(args, 1, fixed)", "return \"\"", "API/api-31-around-the-rules", "--- FAIL: TestHostileAPI/api-31-around-the-rules/programs_of_gcc "},
		{"internal/permission/decide.go", "c.env = gitEnv(args, fixed)", "gitEnv(args, fixed)", "API/api-32-unpacked-git", "ran true, want false"},
		{forkServer + "judge.py", "if left < 0 or depth > MAX_DEPTH:\n            return True", "if depth > MAX_DEPTH:\n            raise RecursionError", "API/api-33-deep-input", "SETUP_FAILED"},
		{forkServer + "become.py", "except BaseException:\n        forked = False", "except OSError:\n        forked = False", "API/api-33-deep-input", "SETUP_FAILED"},
		{"sandbox/pool_zygotes.go", "&& !slices.ContainsFunc(e.users(now), func(user string) bool { return !may(user) })", "&& may != nil", "API/api-34-python-hog", "another Python zygote serves the caller"},
		{forkServer + "renew.py", "generator.seed()", "pass", "Leak/leak-16-random-state", "drew the same rng"},
		{forkServer + "renew.py", "dummy._base_dummy_index = 10**6", "name = 10**6", "Leak/leak-16-random-state", "drew the same Dummy"},
		{"sandbox/python.go", "func (s Spec) pythonKey() pythonKey {", "var last []string\n\nfunc (s Spec) pythonKey() pythonKey {\n\tlast = s.Env", "Leak/leak-17-bytes-in-zygotes", "has a text of a request"},
		{"sandbox/cloner.go", "pyzygote.Start(z.Spawn, ", "pyzygote.Start(func(p string, env []string, theirs, log *os.File) (int, *os.File, error) {\n\treturn z.Spawn(p, append(env, last...), theirs, log)\n}, ", "Leak/leak-17-bytes-in-zygotes", "has a text of a request"},
	},
}

// TestMutationOfBounds takes bounds off the daemon. The cases that attack them must fail.
func TestMutationOfBounds(t *testing.T) {
	mutates(t)
	const green = "API/api-03-path-traversal"
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		t.Run(name, func(t *testing.T) {
			cases, words := map[string]bool{green: true}, []string(nil)
			for _, b := range bounds[name] {
				cases[b.test], words = true, append(words, b.words)
			}
			dir := buildWithout(t, bounds[name])
			groups, ids, red := map[string]bool{}, []string(nil), []string(nil)
			for test := range cases {
				group, id, _ := strings.Cut(test, "/")
				groups[group], ids = true, append(ids, id)
				if test != green {
					red = append(red, "TestHostile"+test)
				}
			}
			run := fmt.Sprintf("^TestHostile(%s)$/^(%s)$", strings.Join(slices.Sorted(maps.Keys(groups)), "|"), strings.Join(ids, "|"))
			wait := patience
			if name == "one caller takes all" {
				wait /= 2 // its cases wait for answers that never come
			}
			wantSuite(t, dir, run, wait, words, red, []string{"TestHostile" + green})
		})
	}
}

// TestBoundsStand fails if TestMutationOfBounds can no longer make one of its changes. make test runs
// it, so that a moved bound is noticed at once.
func TestBoundsStand(t *testing.T) {
	for name, off := range bounds {
		t.Run(name, func(t *testing.T) { changed(t, off) })
	}
}

// changed returns the texts of the source files without bounds, by their paths.
func changed(t *testing.T, off []bound) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, b := range off {
		path, err := filepath.Abs(filepath.Join("../..", b.file))
		if err != nil {
			t.Fatal(err)
		}
		text, known := texts[path]
		if !known {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(data)
		}
		switch n := strings.Count(text, b.from); {
		case n == 1:
			texts[path] = strings.Replace(text, b.from, b.to, 1)
		case n > 1 || !strings.Contains(text, b.to): // else another bound has changed it already
			t.Fatalf("%s has %q %d times, want once", b.file, b.from, n)
		}
	}
	return texts
}

// buildWithout builds a daemon without bounds and returns its directory. The compiler reads the
// changed files in place of the ones in the repository: -overlay of go help build.
func buildWithout(t *testing.T, off []bound) string {
	t.Helper()
	dir := newDir(t)
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command to build the daemon without bounds with")
	}
	replace := map[string]string{}
	for path, text := range changed(t, off) {
		replace[path] = filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", dir+"/", ".", "../skillrun-network").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}
