package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/socket/sockettest"
)

// withDescriptors runs f while this process can open only so many files more.
func withDescriptors(t *testing.T, more int, f func()) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	highest := 0
	open := map[int]bool{}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		// The directory itself is closed by now.
		if _, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			open[n], highest = true, max(highest, n)
		}
	}
	limit := 0
	for free := 0; free < more; limit++ {
		if !open[limit] {
			free++
		}
	}
	limit = max(limit, 3)
	var was unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: was.Max}, nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// keptFiles is how many files stay open when all that only finalisers close, as
// libcontainer leaves some after an error, is closed.
func keptFiles(t *testing.T, want int) int {
	t.Helper()
	for range 10 {
		if sockettest.OpenFiles(t) <= want {
			break
		}
		runtime.GC()
		// Finalizers run one after the other, so the earlier ones have run by then.
		done := make(chan struct{})
		runtime.SetFinalizer(new([64]byte), func(*[64]byte) { close(done) })
		runtime.GC()
		<-done
	}
	return sockettest.OpenFiles(t)
}

// TestStartWithoutDescriptors starts sandboxes with one descriptor, two, and so on,
// so that each step of a start fails once for want of one. Each start is a
// *SetupError or a program that runs to its end, and nothing is left of either.
//
// No sandbox waits in the pool: a waiting one would need fewer descriptors, and which start
// gets it depends on the pool's speed.
func TestStartWithoutDescriptors(t *testing.T) {
	t.Run("direct", func(t *testing.T) { testStartWithoutDescriptors(t, openHost(t)) })
	t.Run("zygote", func(t *testing.T) {
		c := testConfig(t)
		c.Zygote = true
		testStartWithoutDescriptors(t, openWith(t, c))
	})
}

func testStartWithoutDescriptors(t *testing.T, h *Host) {
	snapshot := newSnapshot(t, map[string]string{"a": "a"})
	spec := Spec{
		Program: command("/usr/bin/cat", "a"), Env: testEnv,
		Workspace: Workspace{Lower: []string{snapshot}},
		Mounts:    []Mount{{Source: snapshot, Target: "/skills/s", Owned: true}},
	}
	run(t, h, spec, "") // opens the files that are opened once
	files := sockettest.OpenFiles(t)
	refused, ran := map[string]int{}, 0
	// Two that run show that the descriptors were enough and not the exact number.
	for more := 0; ran < 2; more++ {
		if more == 200 {
			t.Fatalf("200 descriptors are not enough: %v", refused)
		}
		spec.ID = fmt.Sprintf("scarce%d", more)
		var out bytes.Buffer
		var p *Process
		var err error
		withDescriptors(t, more, func() {
			p, err = h.Start(context.Background(), spec, IO{Stdout: &out})
		})
		if err == nil {
			exit, werr := p.Wait()
			if werr != nil || exit.End != Exited || exit.Code != 0 || out.String() != "a" {
				t.Errorf("%d descriptors: got %+v, %v, %q", more, exit, werr, out.String())
			}
			ran++
			continue
		}
		setup := (*SetupError)(nil)
		if !errors.As(err, &setup) {
			t.Errorf("%d descriptors: got %v, want a *SetupError", more, err)
			continue
		}
		refused[setup.Step]++
	}
	t.Logf("steps that failed: %v", refused)
	if len(refused) < 3 {
		t.Errorf("only these steps failed: %v", refused)
	}
	noLeftovers(t, h)
	if got := keptFiles(t, files); got > files {
		t.Errorf("open files: got %d, want %d", got, files)
	}
	// The host still works.
	if got := run(t, h, spec, ""); got.stdout != "a" {
		t.Errorf("afterwards: got %+v", got)
	}
}

// TestOpenWithoutDescriptors is the same for a Host.
func TestOpenWithoutDescriptors(t *testing.T) {
	openHost(t) // opens the files that are opened once
	files := sockettest.OpenFiles(t)
	config := testConfig(t)
	var err error
	if config.RunDir, err = os.MkdirTemp("/run", "skillrun-test-"); err != nil { // where every sandbox may pass
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(config.RunDir) })
	failed := 0
	for more := 0; ; more++ {
		if more == 200 {
			t.Fatal("200 descriptors are not enough")
		}
		var h *Host
		var err error
		withDescriptors(t, more, func() { h, err = Open(context.Background(), config) })
		if err == nil {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			break
		}
		failed++
	}
	if failed < 3 {
		t.Errorf("%d descriptors were enough", failed)
	}
	if got := keptFiles(t, files); got > files {
		t.Errorf("open files: got %d, want %d", got, files)
	}
	if left, _ := os.ReadDir(config.RunDir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if left, _ := os.ReadDir(config.StateDir + "/instances"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
