package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/audit"
)

// A run with --learn prints the rules that it needed. A daemon with exactly these rules lets the program do
// the same again, and no more.
func TestNetworkLearn(t *testing.T) {
	t.Parallel()
	start := func(network string) (*running, string) {
		dir := newDir(t)
		writeSkill(t, dir, "learner", "", map[string]string{"scripts/ask.py": ask})
		network = strings.Replace(network, "skills:", `"skills":`, 1) // launch looks for the daemon's key skills
		return startOnInternet(t, dir, "\n"+network), dir
	}
	const metadata = "http://169.254.169.254/"
	_, dir := start("network: {allow: [], skills: {learner: {allow: [\"db.example:5432\"], deny: [denied.example]}}}\n")
	cmd := exec.Command(binary(t, "skillrun"), "--address", "unix://"+dir+"/s.sock", "run", "--learn", "learner", "scripts/ask.py",
		"http://web.example/", "http://other.example/", "http://denied.example/", metadata)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil || !strings.HasPrefix(stdout.String(), "hello, web.example\nhello, other.example\nhttp://denied.example/ ") || strings.Count(stdout.String(), "hello") != 2 {
		t.Fatalf("run: %v\n%s%s", err, stdout.String(), stderr.String())
	}
	_, yaml, _ := strings.Cut(stderr.String(), "# The network that this run of learner needed:\n")
	if !strings.Contains(yaml, "# refused: tcp 169.254.169.254:80, link-local") ||
		!strings.HasSuffix(yaml, "network:\n  allow: [] # or the list that you have; without this key it is [public]\n  skills:\n    \"learner\":\n      allow:\n        - \"other.example:80\"\n        - \"web.example:80\"\n") {
		t.Fatalf("printed\n%s", stderr.String())
	}
	if !slices.ContainsFunc(auditEntries(t, dir), func(e audit.Entry) bool { return e.Event == audit.Execute && e.Learn && e.Decision == audit.Allowed }) {
		t.Error("the audit log does not say that the execution learns")
	}

	d, _ := start(yaml)
	r := d.run(script("learner", "scripts/ask.py", "http://web.example/", "http://other.example/", "http://third.example/", metadata))
	if out := r.stdout.String(); !strings.HasPrefix(out, "hello, web.example\nhello, other.example\nhttp://third.example/ ") || strings.Count(out, "hello") != 2 {
		t.Errorf("with the learned rules: %q", out)
	}
	if r.outcome.LearnedRules != nil {
		t.Errorf("it learned, too: %v", r.outcome.LearnedRules)
	}
}
