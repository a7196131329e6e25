package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/failpoint"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
	"github.com/skillrun/skillrun/sandbox"
)

// Passing tests mean something only if they can fail. TestMutation removes one layer at a
// time from the real daemon's sandboxes and runs cases of the catalogue. The cases that
// attack the layer must fail.

// A mutation has the expected results with one layer off.
type mutation struct {
	// Daemon has the boundaries that the daemon itself must find missing. It may find more
	// missing, depending on the kernel and its settings.
	Daemon []string `json:"daemon"`
	// Red has the cases that must fail, with words of the failure. The words show that the
	// case failed because of the layer, and not because of a busy machine.
	Red   map[string]string `json:"red"`
	Green []string          `json:"green"` // cases that attack something else and must pass
	// V1 is set for a layer that only cgroup v1 has.
	V1 bool `json:"v1"`
	// Refused is part of the daemon's error if no sandbox can be made without the layer, so
	// that the daemon does not start.
	Refused string `json:"refused"`
}

func (m mutation) cases() []string { return append(slices.Sorted(maps.Keys(m.Red)), m.Green...) }

func mutations(t testing.TB) map[string]mutation {
	t.Helper()
	all := map[string]mutation{}
	decodeStrictly(t, "mutations.json", &all)
	return all
}

// mutationVar is set to "later" by make test, which leaves the tests whose names begin with
// TestMutation to make test-mutation. Package docs reads it, too.
const mutationVar = "SKILLRUN_TEST_MUTATION"

// mutates begins each test that runs a broken daemon.
func mutates(t *testing.T) {
	t.Helper()
	if os.Getenv(mutationVar) == "later" {
		t.Skip("make test-mutation runs this test")
	}
	t.Parallel()
}

func TestMutation(t *testing.T) {
	mutates(t)
	daemon := buildFaulty(t)
	cases := hostileCasesByID(t)
	all := mutations(t)
	every := map[string]bool{}
	for layer, m := range all {
		for _, id := range m.cases() {
			if c, ok := cases[id]; !ok || !c.inSandbox() || c.Advisory {
				t.Fatalf("mutations.json: %s: %s is no case that fails in a sandbox", layer, id)
			}
			every[id] = true
		}
	}
	t.Run("a build for use has no such switch", func(t *testing.T) { wantNoSwitch(t, daemon) })
	t.Run("posture", func(t *testing.T) { wantPostureRefused(t, daemon) })
	// The same build passes with all layers on, so a failure below is caused by the layer.
	t.Run("nothing", func(t *testing.T) {
		startFaulty(t, daemon, "").wantJudged(t, cases, mutation{Green: slices.Sorted(maps.Keys(every))})
	})
	for _, layer := range slices.Sorted(maps.Keys(all)) {
		t.Run(layer, func(t *testing.T) {
			m := all[layer]
			if m.V1 && unified() {
				t.Skip("on cgroup v2, the memory limit covers this")
			}
			if m.Refused != "" {
				wantNoStart(t, daemon, layer, m.Refused)
				return
			}
			if _, red := m.Red[i386Case]; red && !answersI386(t, cases[i386Case]) {
				t.Logf("left out: this machine answers no system calls of i386, so %s can't fail", i386Case)
				delete(m.Red, i386Case)
			}
			d := startFaulty(t, daemon, layer)
			d.wantMissing(m.Daemon)
			d.wantJudged(t, cases, m)
		})
	}
}

// i386Case asks for its own process id as a program of i386 would (int 0x80).
const i386Case = "k-10-i386-syscalls"

// answersI386 runs i386Case without a sandbox, which is harmless. Some kernels and some virtual machines answer no
// system calls of i386; there the case passes without the filter, too.
func answersI386(t testing.TB, c hostileCase) bool {
	t.Helper()
	out, err := exec.Command("python3", "-c", c.Code).CombinedOutput()
	if err != nil {
		t.Fatalf("%s without a sandbox: %v\n%s", i386Case, err, out)
	}
	return strings.HasPrefix(string(out), "FAIL")
}

// faultyDir has the programs of buildFaulty; "" before the build. TestMain removes it.
var faultyDir string

var faulty = sync.OnceValue(func() error {
	var err error
	if faultyDir, err = os.MkdirTemp("/var/tmp", "skillrund-faulty-"); err != nil {
		return err
	}
	// The other tags are those of make build, so that SQLite is not compiled again.
	if out, err := exec.Command("go", "build", "-tags", "netgo,osusergo,sqlite_omit_load_extension,grpcnotrace,"+faultTag, "-ldflags", "-s -w", "-o", faultyDir, ".", "../skillrun-network").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
})

// buildFaulty builds the daemon that can switch layers off, and skillrun-network, once.
// It returns the daemon's path.
func buildFaulty(t testing.TB) string {
	t.Helper()
	needsDaemon(t)
	if built := os.Getenv("SKILLRUN_FAULTY_BIN"); built != "" { // built before, for machines without Go
		return filepath.Join(built, "skillrund")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command to build the daemon without layers with")
	}
	if err := faulty(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(faultyDir, "skillrund")
}

// The build tag and the environment variable of sandbox/fault.go.
const (
	faultTag = "skillrun_faults"
	faultVar = "SKILLRUN_FAULT"
)

// startFaulty starts the daemon without one layer. The configuration lets it serve although
// boundaries are missing.
func startFaulty(t testing.TB, program, layer string) *running {
	t.Helper()
	d := launchFaulty(t, program, layer, "boundaries: {allow_missing: ["+strings.Join(sandbox.Lowerable(), ", ")+"]}\n")
	d.waitServing()
	return d
}

func launchFaulty(t testing.TB, program, layer, extra string) *running {
	t.Helper()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	return launchProgram(t, dir, extra, program, faultVar+"="+layer)
}

// launchProgram launches a daemon of another build, with a variable in its environment.
func launchProgram(t testing.TB, dir, extra, program, variable string, sockets ...*os.File) *running {
	t.Helper()
	d := launchWith(t, dir, extra, sockets, "/usr/bin/env", variable, "/bin/sh", "-c", `shift; exec "$0" "$@"`, program)
	d.dial("unix://" + dir + "/s.sock")
	return d
}

// wantNoSwitch checks that the shipped daemon has no fault injection: its binary contains neither
// the tag nor the variable nor a function of the injection, and with the variable set its sandboxes have all layers.
func wantNoSwitch(t *testing.T, program string) {
	words := [][]byte{[]byte(faultVar), []byte("its sandboxes lack a layer"), []byte("sandbox.injectFaults"), []byte("sandbox.faultyLimits"), []byte("fault_zygote.go"), []byte(failpoint.KillVar)}
	for _, tt := range []struct {
		path string
		want bool
	}{{program, true}, {binary(t, "skillrund"), false}} {
		data, err := os.ReadFile(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range words {
			if got := bytes.Contains(data, w); got != tt.want {
				t.Errorf("%s has %q: %v, want %v", tt.path, w, got, tt.want)
			}
		}
		info, err := buildinfo.ReadFile(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
			return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), faultTag)
		})
		if got != tt.want {
			t.Errorf("%s is built with the tag: %v, want %v", tt.path, got, tt.want)
		}
	}
	d := launchFaulty(t, binary(t, "skillrund"), "capabilities", "")
	d.waitServing() // it serves only if it finds every boundary
	d.run(shell("hostile", "grep CapEff /proc/self/status")).wantStdout(t, "CapEff:\t0000000000000000\n")
}

// wantPostureRefused removes layers from the sandboxes of executions only. The daemon still
// checks each program's posture before it starts. It must execute nothing and log the
// difference.
func wantPostureRefused(t *testing.T, program string) {
	for layer, differences := range map[string][]string{
		"network":        {"net namespace: got the daemon's"},
		"core dumps":     {"rlimit 4: got 1073741824/1073741824, want 1"},
		"oom score":      {"oom_score_adj: got 0, want 1000"},
		"user namespace": {"Uid: got ", `"1000\\t1000\\t1000\\t1000\`, "; Gid: got ", "; user namespace: got the daemon's"},
	} {
		t.Run(layer, func(t *testing.T) {
			d := launchFaulty(t, program, layer+", read back", "")
			d.waitServing()
			r := d.run(shell("hostile", "echo ran"))
			o := r.outcome
			if o.End != pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED || o.Evidence.GetSetupStep() != "posture" || o.ExitCode != nil || r.stdout.Len() > 0 {
				t.Errorf("ended as %v with stdout %q, want SETUP_FAILED at the posture", o, r.stdout.String())
			}
			// The caller does not learn the difference, because it describes this machine.
			if !strings.Contains(o.Advice, "the daemon's log says why") {
				t.Errorf("advice %q", o.Advice)
			}
			line := d.logLine(r.id, "level=ERROR")
			for _, want := range differences {
				if !strings.Contains(line, want) {
					t.Errorf("the log says %q, want %q in it", line, want)
				}
			}
			d.wantNothingLeft()
		})
	}
}

// logLine returns the first line of the log that contains all of words, "" if none does.
func (d *running) logLine(words ...string) string {
	for line := range strings.Lines(d.log.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return line
		}
	}
	return ""
}

// broken has daemons with faults outside of the sandboxes: a script changes the daemon's
// directory, $dir, or its configuration, $config, before the real daemon starts.
var broken = []struct {
	name, script string
	run          string   // pattern for -test.run
	red, green   []string // names of tests that must fail and that must pass
	why          string   // part of the output of a failed test
}{
	{
		"its records are gone at each start", `rm -rf "$dir/state/record"`,
		"^TestHostile(API|Fault)$/^(api-03-path-traversal|api-15-replay|fault-01-sigkill-midrun)$",
		[]string{"TestHostileAPI/api-15-replay", "TestHostileFault/fault-01-sigkill-midrun"}, []string{"TestHostileAPI/api-03-path-traversal"},
		"after a restart",
	},
	{
		"more run at once than is configured", `sed -i 's/running: 4,/running: 40,/' "$config"`,
		"^TestHostileAPI$/^(api-03-path-traversal|api-20-quota-race)$",
		[]string{"TestHostileAPI/api-20-quota-race"}, []string{"TestHostileAPI/api-03-path-traversal"},
		"want at most 4",
	},
}

// TestMutationOfTheDaemon runs tests of the hostile suite that attack no sandbox against
// broken daemons. The tests must fail.
func TestMutationOfTheDaemon(t *testing.T) {
	mutates(t)
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			dir := newDir(t)
			whole := filepath.Join(dir, "whole")
			copyPrograms(t, map[string]string{whole: binary(t, "skillrund"), filepath.Join(dir, "skillrun-network"): binary(t, "skillrun-network")})
			script := fmt.Sprintf("#!/bin/sh -e\nconfig=$2 dir=$(dirname \"$2\")\n%s\nexec %s \"$@\"\n", b.script, whole)
			writeProgram(t, filepath.Join(dir, "skillrund"), script)
			wantSuite(t, dir, b.run, patience, []string{b.why}, b.red, b.green)
		})
	}
}

// writeProgram writes a script that can be executed.
func writeProgram(t testing.TB, path, text string) {
	t.Helper()
	// If another test forked a child now, the child would keep the script open for writing. Then the
	// script can't be executed (ETXTBSY in execve(2)).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// copyPrograms copies programs to paths. cp writes the copies: a child that another test has just forked would keep a
// file of this process open, and a file that is open for writing can't be executed, ETXTBSY in execve(2).
func copyPrograms(t *testing.T, from map[string]string) {
	t.Helper()
	for path, program := range from {
		if out, err := exec.Command("/usr/bin/cp", program, path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// wantSuite runs the tests of the hostile suite that match a pattern against the skillrund in
// dir. The suite must fail and say all of words, the red tests must fail, and the green ones pass.
// patience is for waits that must fail.
func wantSuite(t *testing.T, dir, run string, patience time.Duration, words, red, green []string) {
	t.Helper()
	// /usr/bin/false stands in for skillrun-python: no test here uses the embedded Python.
	copyPrograms(t, map[string]string{filepath.Join(dir, "skillrun"): binary(t, "skillrun"), filepath.Join(dir, "skillrun-python"): "/usr/bin/false"})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	suite := exec.Command(self, "-test.v", "-test.run", run)
	suite.Env = append(os.Environ(), "SKILLRUN_BIN="+dir, patienceVar+"="+patience.String())
	out, err := suite.CombinedOutput()
	for _, name := range red {
		if bytes.Contains(out, []byte("--- SKIP: "+name+" ")) {
			t.Skipf("%s needs something that this machine lacks:\n%s", name, tail(string(out), 12000))
		}
	}
	if err == nil {
		t.Errorf("the suite passes")
	}
	for _, word := range words {
		if !bytes.Contains(out, []byte(word)) {
			t.Errorf("the suite does not say %q", word)
		}
	}
	for word, names := range map[string][]string{"FAIL": red, "PASS": green} {
		for _, name := range names {
			if !bytes.Contains(out, []byte("--- "+word+": "+name+" ")) {
				t.Errorf("no %s of %s", word, name)
			}
		}
	}
	if t.Failed() {
		t.Logf("%s", tail(string(out), 12000))
	}
}

// wantMissing checks that the daemon itself reports these boundaries as missing.
func (d *running) wantMissing(want []string) {
	d.t.Helper()
	missing := map[string]bool{}
	for _, b := range d.capabilities().Boundaries {
		missing[b.Name] = !b.GetFound()
	}
	for _, name := range want {
		if !missing[name] {
			d.t.Errorf("the daemon does not find that %q is missing", name)
		}
	}
}

// wantNoStart checks that the daemon does not start and that its log contains why.
func wantNoStart(t testing.TB, program, layer, why string) {
	t.Helper()
	d := launchFaulty(t, program, layer, "")
	if err := d.wait(); err == nil || !strings.Contains(d.log.String(), why) {
		t.Errorf("the daemon ended with %v, want an error that says %q\n%s", err, why, tail(d.log.String(), 2000))
	}
}

// wantJudged runs the cases of m, several at once, and checks which of them fail.
func (d *running) wantJudged(t testing.TB, cases map[string]hostileCase, m mutation) {
	t.Helper()
	places := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, id := range m.cases() {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			v := judged(t, func(t testing.TB) { runInSandbox(t, d, cases[id]) })
			words, red := m.Red[id]
			switch {
			case !red && v.Failed():
				t.Errorf("%s fails:\n%s", id, tail(v.text(), 3000))
			case red && !v.Failed():
				t.Errorf("%s does not notice:\n%s", id, tail(v.text(), 3000))
			case red && !strings.Contains(v.text(), words):
				t.Errorf("%s fails, but not with %q:\n%s", id, words, tail(v.text(), 3000))
			}
		})
	}
	wg.Wait()
	t.Logf("%d cases that must fail, %d that must not", len(m.Red), len(m.Green))
}

// A verdict records the messages and the failure of a case instead of failing the test.
type verdict struct {
	testing.TB // for all other methods
	ctx        context.Context

	mu       sync.Mutex
	failed   bool
	said     bytes.Buffer
	cleanups []func()
}

// judged runs a case to its end in a new goroutine, which FailNow may end.
func judged(t testing.TB, run func(testing.TB)) *verdict {
	ctx, cancel := context.WithCancel(t.Context())
	v := &verdict{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer v.cleanUp()
		defer cancel()
		run(v)
	}()
	<-done
	return v
}

func (v *verdict) cleanUp() {
	for {
		v.mu.Lock()
		last := len(v.cleanups) - 1
		if last < 0 {
			v.mu.Unlock()
			return
		}
		f := v.cleanups[last]
		v.cleanups = v.cleanups[:last]
		v.mu.Unlock()
		f()
	}
}

func (v *verdict) say(failed bool, text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = v.failed || failed
	fmt.Fprintln(&v.said, text)
}

func (v *verdict) text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.said.String()
}

func (v *verdict) Failed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.failed
}

func (v *verdict) Cleanup(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cleanups = append(v.cleanups, f)
}

func (v *verdict) Context() context.Context { return v.ctx }

func (v *verdict) Log(args ...any)                   { v.say(false, fmt.Sprint(args...)) }
func (v *verdict) Logf(format string, args ...any)   { v.say(false, fmt.Sprintf(format, args...)) }
func (v *verdict) Error(args ...any)                 { v.say(true, fmt.Sprint(args...)) }
func (v *verdict) Errorf(format string, args ...any) { v.say(true, fmt.Sprintf(format, args...)) }
func (v *verdict) Fail()                             { v.say(true, "failed") }
func (v *verdict) FailNow()                          { v.Fail(); runtime.Goexit() }
func (v *verdict) Fatal(args ...any)                 { v.Error(args...); runtime.Goexit() }
func (v *verdict) Fatalf(format string, args ...any) { v.Errorf(format, args...); runtime.Goexit() }
