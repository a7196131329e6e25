package executor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/permission"
)

// A command line that rules cover does not see the files of its session that a request may not bring as
// inputs. They stay in the session. Code sees them.
func TestSessionFilesAndRules(t *testing.T) {
	b := newSessionBench(t, hosttest.Host(t))
	command := func(line string) executor.Request {
		return b.bash("ruled", "", func(r *executor.Request) {
			r.Source = permission.Source{Kind: permission.Command, Command: line}
		})
	}
	for _, c := range []struct{ file, line, want string }{
		{".git/config", "cat in.txt .git/config", "files in .git can make git run any command"},
		{"sub/.Rprofile", "cat in.txt sub/.Rprofile", "R runs code"},
		{"scripts/new.py", "cat in.txt scripts/new.py", "scripts/ holds the skill's scripts"},
		{"json.py", "python helper.py", "the request runs 'helper.py'"},
	} {
		b.run(b.bash("one", "mkdir -p sub .git scripts; echo 1 > in.txt; echo 'print(1)' > "+c.file))
		h, out, text := b.run(command(c.line))
		if !slices.ContainsFunc(h.Warnings, func(w string) bool {
			return strings.HasPrefix(w, "1 files of the session are hidden, such as \""+c.file+"\": "+c.want)
		}) {
			t.Errorf("%s: warnings %q", c.file, h.Warnings)
		}
		if missing := strings.Contains(text, c.file+": No such file"); missing != (c.file != "json.py") || !missing && text != "helper\n" {
			t.Errorf("%s: got %q, %+v", c.line, text, out)
		}
		if b.files()[c.file] != "print(1)\n" {
			t.Errorf("%s is not in the session: %q", c.file, b.files())
		}
		if h, _, text := b.run(b.bash("ruled", "cat "+c.file+"; rm "+c.file)); text != "print(1)\n" || h.Warnings != nil {
			t.Errorf("code: got %q, warnings %q", text, h.Warnings)
		}
	}
	// A file that the program itself writes there is its own, whether or not it is the same.
	b.run(b.bash("one", "mkdir scripts; echo 1 > scripts/made.txt"))
	for _, line := range []string{"python helper.py scripts/made.txt 1", "python helper.py scripts/made.txt 2"} {
		h, out, _ := b.run(command(line))
		if want := line[len(line)-1:] + "\n"; len(h.Warnings) != 1 || out.Count != 1 || out.Session.Uncommitted != "" || b.files()["scripts/made.txt"] != want {
			t.Errorf("%s: %d artifacts, %+v, %q", line, out.Count, out.Session, b.files())
		}
	}
	// The skill's own file hides the session's.
	b.run(b.bash("one", "rm -r scripts; mkdir scripts; echo 'print(1)' > scripts/x.py; echo 'print(1)' > helper.py; echo free > free.txt"))
	if h, out, text := b.run(command("python helper.py && cat free.txt")); text != "helper\nfree\n" || h.Warnings != nil {
		t.Errorf("got %q, %+v", text, out)
	}
}

// A hostile skill leaves files that Python, node and git load without being asked. The script of another
// skill, its commands, and inline code with a secret do not load them; the caller's inline code has the
// modules of its session.
func TestSessionFilesBecomeNoCode(t *testing.T) {
	b := newSessionBench(t, hosttest.Host(t))
	script := func(skill, path string, edit ...func(*executor.Request)) executor.Request {
		edit = append([]func(*executor.Request){func(r *executor.Request) {
			r.Source = permission.Source{Kind: permission.Script, Script: path}
		}}, edit...)
		return b.bash(skill, "", edit...)
	}
	if _, out, text := b.run(script("hostile", "plant.py")); out.Session.Committed != 1 {
		t.Fatalf("got %q, %+v", text, out.Session)
	}
	planted := b.files()
	python := func(code string, edit ...func(*executor.Request)) executor.Request {
		edit = append([]func(*executor.Request){func(r *executor.Request) {
			r.Source = permission.Source{Kind: permission.Code, Language: "python", Code: code}
		}}, edit...)
		return b.bash("victim", "", edit...)
	}
	secret := func(r *executor.Request) { r.SecretEnv = map[string]executor.Secret{"TOKEN": "x"} }
	const trying = "def has(m):\n try: return '/workspace' in str(__import__(m, fromlist=['x']).__file__)\n except ImportError: return False\nprint([m for m in ('csv', 'requests', 'google.auth') if has(m)])"
	for name, c := range map[string]struct {
		req  executor.Request
		want string
	}{
		"script":            {script("victim", "scripts/report.py"), "[]\ndata\n"},
		"script at the top": {script("victim", "top.py"), "[]\ndata\n"},
		"command": {b.bash("victim", "", func(r *executor.Request) {
			r.Source = permission.Source{Kind: permission.Command, Command: "python3 scripts/report.py"}
		}), "[]\ndata\n"},
		"code with a secret":    {python(trying, secret), "[]\n"},
		"the caller's own code": {python(trying), "['csv', 'requests', 'google.auth']\n"},
		"an input instead": {script("victim", "scripts/report.py", func(r *executor.Request) {
			r.Files = []executor.Input{{Path: "scripts/requests.py", Content: []byte("")}}
		}), "['requests']\ndata\n"},
	} {
		h, out, text := b.run(c.req)
		if text != c.want || out.End != executor.Exited || *out.ExitCode != 0 {
			t.Errorf("%s: got %q, %+v, want %q", name, text, out, c.want)
		}
		if warned := len(h.Warnings) == 1 && strings.Contains(h.Warnings[0], "files of the session are hidden"); warned != (name != "the caller's own code") {
			t.Errorf("%s: warnings %q", name, h.Warnings)
		}
	}
	// A program that removes the folder of a hidden file does not remove the file.
	if _, out, text := b.run(b.bash("victim", "rm -r google; rm in.csv", secret)); out.Session.Deleted != 1 {
		t.Errorf("got %q, %+v", text, out.Session)
	}
	delete(planted, "in.csv")
	b.check(planted)
}
