package pyzygote_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// processState is the output of testdata/state/dump.py about a process.
type processState struct {
	objects    map[string]string // path to a hash of the object's content
	generators []string          // states of random number generators
}

func parseState(t *testing.T, text string) processState {
	t.Helper()
	s := processState{objects: map[string]string{}}
	for line := range strings.Lines(text) {
		path, hash, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if path == "random" {
			s.generators = append(s.generators, hash)
		} else {
			s.objects[path] = hash
		}
	}
	if len(s.objects) < 10_000 || len(s.generators) == 0 {
		t.Fatalf("%d objects and %d generators: %s", len(s.objects), len(s.generators), text[:min(len(text), 1000)])
	}
	return s
}

// startedState returns the state of a started Python. Its address layout and hash seed are
// always the same, so differences come from chance, time or process numbers.
func startedState(t *testing.T, names []string) processState {
	t.Helper()
	const start = `import ctypes, os, sys; ctypes.CDLL(None).personality(0x0040000); os.execv(sys.argv[1], sys.argv[1:])`
	cmd := exec.Command(forkServerPython(), append([]string{"-c", start, forkServerPython(), "testdata/state/dump.py"}, names...)...)
	cmd.Env = append(forkServerEnv(), "PYTHONHASHSEED=1", "OPENBLAS_NUM_THREADS=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return parseState(t, string(out))
}

// Two forked Pythons have only that in common which two started ones have in common. No
// random state, key, token or time of the fork server is in both.
func TestForkServerRenews(t *testing.T) {
	t.Parallel()
	const runs = 3
	names := pyzygote.Modules()
	server := startForkServer(t, forkServerPython(), names...)
	t.Logf("not installed: %q", server.ready.Failed)
	if len(server.ready.Imported) < 40 {
		t.Fatalf("imported: got %d modules: %q", len(server.ready.Imported), server.ready.Imported)
	}
	skills := publicDir(t)
	if err := os.CopyFS(filepath.Join(skills, "state"), os.DirFS("testdata/state")); err != nil {
		t.Fatal(err)
	}
	c := newForkTarget(t, skills, forkServerAlso()...)
	var forked, started []processState
	for range runs {
		child := server.fork(c)
		child.assign(forkServerCommand{Argv: append([]string{server.cmd.Args[0], "/skills/state/dump.py"}, names...)})
		if by := child.started(); by != "" {
			t.Fatalf("started by %q", by)
		}
		got := child.finish("")
		if got.status != 0 {
			t.Fatalf("got status %#x, stderr %s", got.status, got.stderr)
		}
		forked = append(forked, parseState(t, got.stdout))
		started = append(started, startedState(t, names))
	}
	// The thread's number in the kernel, which is at least 1 in each PID namespace.
	own := map[string]bool{"threading._main_thread": true, "threading._main_thread#0": true}
	same := func(all []processState, path string) bool {
		return !slices.ContainsFunc(all, func(s processState) bool {
			hash, ok := s.objects[path]
			return !ok || hash != all[0].objects[path]
		})
	}
	differing := 0
	for path := range started[0].objects {
		if own[path] || same(started, path) {
			continue
		}
		differing++
		if same(forked, path) {
			t.Errorf("%s: the same in all forked Pythons, and not in started ones", path)
		}
	}
	t.Logf("%d objects, of which %d differ between started Pythons", len(started[0].objects), differing)
	if differing == 0 {
		t.Error("nothing differs between started Pythons")
	}
	for _, state := range forked[0].generators {
		if slices.Contains(forked[1].generators, state) && !slices.Contains(started[0].generators, state) {
			t.Errorf("generators of random numbers have the same state %s", state)
		}
	}
}
