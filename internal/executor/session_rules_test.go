package executor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/permission"
)

// A command line that rules cover does not run beside a file of its session that a request may not bring
// as an input. Code runs, and so can remove the file.
func TestSessionFilesAndRules(t *testing.T) {
	b := newSessionBench(t, hosttest.Host(t))
	command := func(line string) executor.Request {
		return b.bash("ruled", "", func(r *executor.Request) {
			r.Source = permission.Source{Kind: permission.Command, Command: line}
		})
	}
	for _, c := range []struct{ file, line, want string }{
		{".git/config", "cat in.txt", "it is a file of the session: files in .git can make git run any command"},
		{"sub/.Rprofile", "cat in.txt", "it is a file of the session: R runs code"},
		{"scripts/new.py", "cat in.txt", "it is a file of the session: scripts/ holds the skill's scripts"},
		{"json.py", "python helper.py", "it is a file of the session: the request runs 'helper.py'"},
	} {
		b.run(b.bash("one", "mkdir -p sub .git scripts; echo 1 > in.txt; echo 1 > "+c.file))
		_, _, err := b.Executor.Execute(t.Context(), command(c.line))
		if bad, ok := errors.AsType[*executor.InputError](err); !ok || bad.Path != c.file || !strings.HasPrefix(bad.Reason, c.want) {
			t.Errorf("%s beside %s: got %v, want %s", c.line, c.file, err, c.want)
		}
		b.run(b.bash("ruled", "rm "+c.file))
	}
	// The skill's own file hides the session's.
	b.run(b.bash("one", "mkdir scripts; echo 'print(1)' > scripts/x.py; echo 'print(1)' > helper.py; echo free > free.txt"))
	if _, out, text := b.run(command("python helper.py && cat free.txt")); text != "helper\nfree\n" {
		t.Errorf("got %q, %+v", text, out)
	}
}
