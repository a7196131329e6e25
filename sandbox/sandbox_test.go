package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain runs the tests like a daemon, in a new mount namespace. With -short it also runs
// without root, because tests that make sandboxes are then skipped.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "8") // tests are parallel if they wait most of the time; -parallel overrides this
	flag.Parse()
	if !testing.Short() || os.Geteuid() == 0 {
		if err := Isolate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if mainOfTests != nil {
		mainOfTests()
		return
	}
	os.Exit(m.Run())
}

// mainOfTests, if it is not nil, runs instead of the tests.
var mainOfTests func()

var testIDs atomic.Int64

// needsRoot skips a test with -short. The test needs root, for example to make sandboxes.
func needsRoot(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs root, and mostly makes sandboxes: -short leaves it out")
	}
}

func openHost(t testing.TB) *Host {
	t.Helper()
	return openWith(t, testConfig(t))
}

func openWith(t testing.TB, c Config) *Host {
	t.Helper()
	h, err := Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	if (c.Zygote || c.Prewarmed > 0) && !h.pool.wait(t.Context()) {
		t.Fatal("no zygote")
	}
	return h
}

func testConfig(t testing.TB) Config {
	t.Helper()
	needsRoot(t)
	return Config{StateDir: t.TempDir(), PythonFastExit: true}
}

// eachMaker runs a test for each way to make a sandbox (maker.go), with a Host whose
// sandboxes are all made so.
func eachMaker(t *testing.T, test func(*testing.T, *Host)) {
	t.Helper()
	t.Run("direct", func(t *testing.T) { test(t, openHost(t)) })
	t.Run("zygote", func(t *testing.T) { test(t, openPrewarmed(t)) })
}

// byZygote says whether the zygote made c.
func byZygote(c *sandbox) bool { return c.init.spaces != nil }

// result has the parts of a program's end that most tests check.
type result struct {
	exit           Exit
	stdout, stderr string
}

// patientWall returns wall, or a long time if wall is zero: an emulated machine is slow.
func patientWall(wall time.Duration) time.Duration { return cmp.Or(wall, 10*defaultWall) }

// run runs s to its end.
func run(t *testing.T, h *Host, s Spec, stdin string) result {
	t.Helper()
	return runBy(t, h.Start, s, stdin)
}

// runBy is run with the Start of a Host that is given.
func runBy(t *testing.T, start func(context.Context, Spec, IO) (*Process, error), s Spec, stdin string) result {
	t.Helper()
	s.ID = fmt.Sprintf("t%d", testIDs.Add(1))
	s.Limits.Wall = patientWall(s.Limits.Wall)
	var out, errs bytes.Buffer
	io := IO{Stdout: &out, Stderr: &errs}
	if stdin != "" {
		io.Stdin = strings.NewReader(stdin)
	}
	p, err := start(context.Background(), s, io)
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return result{exit, out.String(), errs.String()}
}

// command is the program of one command.
func command(args ...string) Program {
	return Program{{Pipeline: []Command{{Args: args}}}}
}

func TestTrue(t *testing.T) { eachMaker(t, testTrue) }

func testTrue(t *testing.T, h *Host) {
	got := run(t, h, Spec{Program: command("/usr/bin/true")}, "")
	if got.exit.End != Exited || got.exit.Code != 0 {
		t.Errorf("got %+v", got)
	}
}
