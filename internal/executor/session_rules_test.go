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
