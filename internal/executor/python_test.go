package executor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/sandbox"
)

// The Python that a request asks for is mounted, and comes first in PATH, whatever
// the source is.
func TestPythonOfARequest(t *testing.T) {
	specs := make(chan sandbox.Spec, 1)
	x := newExecutor(t, t.TempDir(), func(_ context.Context, s sandbox.Spec, _ sandbox.IO) (process, error) {
		specs <- s
		f := newFake()
		f.exit <- sandbox.Exit{End: sandbox.Exited}
		return f, nil
	})
	system := x.Runtimes
	x.Runtimes = system.WithEmbedded(&runtime.Installation{Dir: "/state/python/root", Version: "3.14.6"})
	python := sandbox.Mount{Source: "/state/python/root", Target: "/opt/python"}
	for what, source := range map[string]permission.Source{
		"script":  {Kind: permission.Script, Script: "scripts/go.py"},
		"code":    {Kind: permission.Code, Code: "1"},
		"bash":    {Kind: permission.Code, Language: "bash", Code: "python3 -c 1"},
		"command": {Kind: permission.Command, Command: "python x.py"},
	} {
		for _, asked := range []runtime.Python{"", runtime.Auto, runtime.System, runtime.Embedded} {
			events := follow(t, x, execute(t, x, Request{Principal: who, Skill: "demo", Source: source, Python: asked}))
			s := <-specs
			mounted := slices.Contains(s.Mounts, python)
			first := slices.ContainsFunc(s.Env, func(v string) bool { return strings.HasPrefix(v, "PATH=/opt/python/bin:/usr/local/bin:") })
			if want := asked == runtime.Embedded; mounted != want || first != want {
				t.Errorf("%s, python %q: mounts %v, environment %v", what, asked, s.Mounts, s.Env)
			}
			if args := events[0].Header.Commands[0]; what == "script" && (args[0] == "/opt/python/bin/python3") != (asked == runtime.Embedded) {
				t.Errorf("python %q: the header says %q", asked, args)
			}
		}
	}
	t.Run("refused", func(t *testing.T) {
		req := scriptRequest()
		req.Python = "3.14"
		var bad *RequestError
		if _, _, err := x.Execute(t.Context(), req); !errors.As(err, &bad) || bad.Field != "python" {
			t.Errorf("a word that is none: %v", err)
		}
		x.Runtimes = system
		req.Python = runtime.Embedded
		var missing *MissingInterpreterError
		if _, _, err := x.Execute(t.Context(), req); !errors.As(err, &missing) {
			t.Errorf("embedded where there is none: %v", err)
		}
		req.Source = permission.Source{Kind: permission.Command, Command: "python x.py"}
		req.Args = nil
		if _, _, err := x.Execute(t.Context(), req); !errors.As(err, &missing) {
			t.Errorf("a command with embedded where there is none: %v", err)
		}
	})
}

// Another Python is another request.
func TestPythonIsPartOfTheHash(t *testing.T) {
	seen := map[string]runtime.Python{}
	for _, p := range []runtime.Python{"", runtime.Auto, runtime.System, runtime.Embedded} {
		req := scriptRequest()
		req.Python = p
		sum, err := req.hash([]byte("key"))
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[string(sum)]; ok {
			t.Errorf("%q and %q have the same hash", p, other)
		}
		seen[string(sum)] = p
	}
}

// Every module that the daemon finds in a text is in the Python zygote's list. With a
// module in one list only, scripts that import it would be executed, which is slower.
func TestPreloadsAreListed(t *testing.T) {
	listed := sandbox.PythonModules()
	for _, name := range runtime.AllPreloads() {
		if !slices.Contains(listed, name) {
			t.Errorf("%s: not a module that a zygote imports", name)
		}
	}
	if got := len(runtime.AllPreloads()); got != len(listed) {
		t.Errorf("got %d preloads, a zygote may import %d modules", got, len(listed))
	}
}
