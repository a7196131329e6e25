package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The hostile suite runs a catalogue of attacks and faults against the real daemon: one test
// for each group and one subtest for each case.
//
// testdata/hostile/catalogue.json describes each case and its expected results. Attacks run
// in a sandbox: the catalogue has their code, or own/ID.{py,sh,c}. The other cases are
// requests and faults, which are Go functions in directCases. adapted.json lists where this
// daemon differs by design from the assumptions of the catalogue, and why. Every expectation
// is checked: an unknown field, status or sentence fails the test.

const hostileDir = "testdata/hostile"

// A hostileCase is one case of the catalogue. Unknown fields are errors.
type hostileCase struct {
	ID       string        `json:"id"`
	Group    string        `json:"group"`
	Lang     string        `json:"lang"`
	Code     string        `json:"code"`
	Expect   expectation   `json:"expect"`
	Limits   hostileLimits `json:"limits"`
	Run      string        `json:"run"`
	Profile  string        `json:"profile"`
	Advisory bool          `json:"advisory"`
	Protocol string        `json:"protocol"`
	Ref      string        `json:"ref"`
}

type expectation struct {
	Status string   `json:"status"`
	Has    []string `json:"stdout_has"`
	Lacks  []string `json:"stdout_lacks"`
	Host   []string `json:"host"`
	Text   string   `json:"text"`
}

// hostileLimits are the limits of one case. Zero means the catalogue's default.
type hostileLimits struct {
	MemMB  uint64 `json:"mem_mb"`
	Pids   uint32 `json:"pids"`
	WallMS int64  `json:"wall_ms"`
	OutKB  uint64 `json:"out_kb"`
	NoFile uint32 `json:"nofile"`
	WorkMB uint64 `json:"work_mb"`
	// The catalogue mentions a limit of processors without a number.
	MilliCPUs uint32 `json:"milli_cpus"`
}

// An adaptation changes a case where this daemon, as documented, differs by design from the
// assumptions of the catalogue.
type adaptation struct {
	Why     string        `json:"why"`
	Replace [][2]string   `json:"replace"` // old and new text of the code; each old text must occur once
	Limits  hostileLimits `json:"limits"`  // zero: as in the catalogue
}

func (l hostileLimits) over(base hostileLimits) hostileLimits {
	pick := func(a, b uint64) uint64 {
		if a != 0 {
			return a
		}
		return b
	}
	return hostileLimits{
		MemMB: pick(l.MemMB, base.MemMB), Pids: uint32(pick(uint64(l.Pids), uint64(base.Pids))), WallMS: int64(pick(uint64(l.WallMS), uint64(base.WallMS))),
		OutKB: pick(l.OutKB, base.OutKB), NoFile: uint32(pick(uint64(l.NoFile), uint64(base.NoFile))), WorkMB: pick(l.WorkMB, base.WorkMB),
		MilliCPUs: uint32(pick(uint64(l.MilliCPUs), uint64(base.MilliCPUs))),
	}
}

var catalogueLimits = hostileLimits{MemMB: 128, Pids: 32, WallMS: 8000, OutKB: 64, NoFile: 256, WorkMB: 16}

// endsByItself has the statuses of programs that end before a deadline. Such a case does not
// test its wall time, so a longer wall time lets it pass on a busy machine.
var endsByItself = map[string]bool{"OK": true, "EXIT": true, "SIGNAL": true, "OOM": true}

// begunByThen is the shortest deadline of the catalogue in milliseconds. Every program must
// have started by then, so a slower machine needs a longer one. The rest of a program until
// its deadline, such as a busy loop, needs no more time there.
const begunByThen = 1500

// childLives is how long background children of cases live at least, in milliseconds. The
// daemon must not wait for these children.
const childLives = 30_000

// patientLimits prolongs the wall time of a case that ends before its deadline.
func (c *hostileCase) patientLimits() {
	most := patience.Milliseconds()
	if slices.ContainsFunc(c.Expect.Host, func(s string) bool { return strings.HasPrefix(s, "WallMs < ") }) {
		most = childLives * 2 / 3
	}
	if endsByItself[c.Expect.Status] {
		c.Limits.WallMS = max(c.Limits.WallMS, most)
	}
}

func (l hostileLimits) proto() *pb.ExecutionLimits {
	return &pb.ExecutionLimits{
		WallTime: durationpb.New(time.Duration(l.WallMS) * time.Millisecond), MemoryBytes: l.MemMB << 20, Processes: l.Pids,
		OutputBytes: l.OutKB << 10, OpenFiles: l.NoFile, WorkspaceBytes: l.WorkMB << 20, MilliCpus: l.MilliCPUs,
	}
}

// decodeStrictly decodes a JSON file and fails the test on an unknown field.
func decodeStrictly(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(hostileDir, path))
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// hostileCasesByID returns all cases by their ids.
func hostileCasesByID(t testing.TB) map[string]hostileCase {
	t.Helper()
	cases := map[string]hostileCase{}
	for _, group := range hostileCases(t) {
		for _, c := range group {
			cases[c.ID] = c
		}
	}
	return cases
}

// hostileCases returns the catalogue with its adaptations, by group.
func hostileCases(t testing.TB) map[string][]hostileCase {
	t.Helper()
	var catalogue struct {
		About       string            `json:"about"`
		Conventions map[string]string `json:"conventions"`
		Cases       []hostileCase     `json:"cases"`
	}
	decodeStrictly(t, "catalogue.json", &catalogue)
	adapted := map[string]adaptation{}
	decodeStrictly(t, "adapted.json", &adapted)
	groups := map[string][]hostileCase{}
	seen := map[string]bool{}
	for _, c := range catalogue.Cases {
		if seen[c.ID] {
			t.Errorf("%s comes twice", c.ID)
		}
		seen[c.ID] = true
		c.Limits = c.Limits.over(catalogueLimits)
		c.Limits.WallMS = max(c.Limits.WallMS, begunByThen*int64(slower))
		c.patientLimits()
		if c.inSandbox() && c.Code == "" {
			c.Code = ownAttack(t, c)
		}
		if a, ok := adapted[c.ID]; ok {
			c.adapt(t, a)
			delete(adapted, c.ID)
		}
		groups[c.Group] = append(groups[c.Group], c)
	}
	for id := range adapted {
		t.Errorf("adapted.json: no case %s", id)
	}
	return groups
}

func (c *hostileCase) adapt(t testing.TB, a adaptation) {
	t.Helper()
	if a.Why == "" {
		t.Errorf("adapted.json: %s has no reason", c.ID)
	}
	c.Limits = a.Limits.over(c.Limits)
	for _, r := range a.Replace {
		if n := strings.Count(c.Code, r[0]); n != 1 {
			t.Errorf("adapted.json: %s has %q %d times", c.ID, r[0], n)
		}
		c.Code = strings.Replace(c.Code, r[0], r[1], 1)
	}
}

func (c *hostileCase) inSandbox() bool {
	return c.Lang == "python" || c.Lang == "bash" || c.Lang == "c"
}

// ownAttack returns the attack of a case that the catalogue only describes in words.
func ownAttack(t testing.TB, c hostileCase) string {
	t.Helper()
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(hostileDir, "own", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	switch c.Lang {
	case "bash":
		return read(c.ID + ".sh")
	case "c":
		return read(c.ID + ".c")
	}
	return read("prelude.py") + read(c.ID+".py")
}

// request returns the request of a case that runs in a sandbox.
func (c *hostileCase) request() *pb.ExecuteRequest {
	var req *pb.ExecuteRequest
	switch c.Lang {
	case "python":
		req = code("hostile", c.Code)
	case "bash":
		req = shell("hostile", c.Code)
	case "c":
		if built := os.Getenv("SKILLRUN_HOSTILE_BUILT"); built != "" { // programs built before, for machines without a compiler
			binary, err := os.ReadFile(filepath.Join(built, c.ID))
			if err != nil {
				panic(err) // the image with this directory has every program
			}
			req = shell("hostile", "cp case /tmp/case && chmod +x /tmp/case && exec /tmp/case")
			req.Files = []*pb.InputFile{{Path: "case", Source: &pb.InputFile_Content{Content: binary}}}
			break
		}
		req = shell("hostile", "gcc -O1 -static -o /tmp/case case.c && exec /tmp/case")
		req.Files = []*pb.InputFile{{Path: "case.c", Source: &pb.InputFile_Content{Content: []byte(c.Code)}}}
	}
	req.Limits = c.Limits.proto()
	req.Labels = map[string]string{"case": c.ID}
	return req
}

func TestHostileFilesystem(t *testing.T) { hostileGroup(t, "filesystem") }
func TestHostileKernel(t *testing.T)     { hostileGroup(t, "kernel") }
func TestHostileProcSys(t *testing.T)    { hostileGroup(t, "procsys") }
func TestHostileNetwork(t *testing.T)    { hostileGroup(t, "network") }
func TestHostileLeak(t *testing.T)       { hostileGroup(t, "leak") }
func TestHostileResource(t *testing.T)   { hostileGroup(t, "resource") }
func TestHostileAPI(t *testing.T)        { hostileGroup(t, "api") }
func TestHostileFault(t *testing.T)      { hostileGroup(t, "fault") }

// TestHostileCatalogue checks that the suite runs every case and every group, and that its
// tables name no case that the catalogue no longer has.
func TestHostileCatalogue(t *testing.T) {
	groups := hostileCases(t)
	known := []string{"api", "fault", "filesystem", "kernel", "leak", "network", "procsys", "resource"}
	ids := map[string]hostileCase{}
	for name, cases := range groups {
		if !slices.Contains(known, name) {
			t.Errorf("no test runs group %q", name)
		}
		for _, c := range cases {
			ids[c.ID] = c
			if _, direct := directCases[c.ID]; direct == c.inSandbox() {
				t.Errorf("%s: in a sandbox %v, a function %v; want one of these", c.ID, c.inSandbox(), direct)
			}
		}
	}
	if len(ids) != 169 {
		t.Errorf("%d cases, want 169", len(ids))
	}
	for id := range directCases {
		if _, ok := ids[id]; !ok {
			t.Errorf("directCases: no case %s", id)
		}
	}
	own, err := filepath.Glob(filepath.Join(hostileDir, "own", "*"))
	if err != nil || len(own) < 30 {
		t.Fatalf("%d attacks of our own, %v", len(own), err)
	}
	for _, path := range own {
		id := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		if _, ok := ids[id]; !ok && id != "prelude" {
			t.Errorf("%s is no case's", path)
		}
	}
}

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

// atOnce is how many cases run at the same time.
const atOnce = 3

// patient has cases that wait about a minute and need no processor while they wait. They
// start first.
var patient = map[string]bool{"api-10-slow-loris": true, "fault-14-sigstop-daemon": true, "res-32-slow-reader": true}

// hostileGroup runs the cases of one group, several at once.
func hostileGroup(t *testing.T, group string) {
	t.Parallel()
	cases := hostileCases(t)[group]
	if len(cases) == 0 {
		t.Fatalf("no case in group %s", group)
	}
	var d *running
	if group != "fault" { // each fault starts its own daemon
		d = startHostile(t, "")
	}
	// This does not use t.Parallel, which runs as many tests as there are processors, because
	// most cases wait for something. Patient cases do not count towards atOnce.
	places := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	slices.SortStableFunc(cases, func(a, b hostileCase) int { return count(patient[b.ID]) - count(patient[a.ID]) })
	for _, c := range cases {
		if !patient[c.ID] {
			places <- struct{}{}
		}
		wg.Go(func() {
			if !patient[c.ID] {
				defer func() { <-places }()
			}
			t.Run(c.ID, func(t *testing.T) {
				if c.inSandbox() {
					runInSandbox(t, d, c)
				} else {
					runDirect(t, d, c)
				}
			})
		})
	}
	wg.Wait()
	if d != nil {
		d.wantNothingLeft()
		d.wantNoProcess()
		d.run(code("hostile", "print('still here')")).wantStdout(t, "still here\n")
	}
}

// runDirect runs a case that is a Go function.
func runDirect(t *testing.T, d *running, c hostileCase) {
	run, ok := directCases[c.ID]
	if !ok {
		t.Fatalf("a case in %q that nothing runs", c.Lang)
	}
	// The function itself checks the expectation, which must be the standard one.
	if want := (expectation{Status: "OK", Has: []string{"PASS"}, Lacks: []string{"FAIL"}, Text: c.Expect.Text}); fmt.Sprint(want) != fmt.Sprint(c.Expect) {
		t.Fatalf("expects %+v, which nothing checks", c.Expect)
	}
	var mine *running
	if d != nil {
		mine = newTrial(t, d, c).d
	}
	run(t, mine, c)
}

// A trial is one run of a case in a sandbox.
type trial struct {
	testing.TB // fails the test, or only logs if the case is advisory
	d          *running
	c          hostileCase
	id         string        // the execution's id, set by its header
	ended      chan struct{} // closed at the execution's end, for checks that run at the same time
	r          *result       // set at the execution's end
	kept       any           // a value that a check's before passes to its after
}

// advice logs errors instead of failing the test.
type advice struct{ testing.TB }

func (a advice) Errorf(format string, args ...any) {
	a.TB.Helper()
	a.TB.Logf("ADVISORY "+format, args...)
}
func (a advice) Error(args ...any) { a.TB.Helper(); a.TB.Log(append([]any{"ADVISORY"}, args...)...) }

func newTrial(t testing.TB, d *running, c hostileCase) *trial {
	tr := &trial{TB: t, c: c}
	if c.Advisory {
		tr.TB = advice{t}
	}
	mine := *d
	mine.t = t
	tr.d = &mine
	return tr
}

// usesHostNames has the cases for which the test, or a sandbox without its network namespace,
// listens on a fixed name of this machine.
var usesHostNames = map[string]bool{"net-03-host-loopback": true, "net-04-abstract-unix": true, "net-09-cross-sandbox-listen": true}

// hostNames is held while such a case runs: tests run at the same time.
var hostNames sync.Mutex

func runInSandbox(t testing.TB, d *running, c hostileCase) {
	if usesHostNames[c.ID] {
		hostNames.Lock()
		defer hostNames.Unlock()
	}
	if runtime.GOARCH != "amd64" && strings.Contains(c.Code, "syscall(") {
		t.Skip("the attack makes system calls by their numbers on x86-64")
	}
	if c.Run != "yes" && c.Run != "hardened-only" {
		t.Fatalf("run %q; nothing says how", c.Run)
	}
	// Every sandbox has the profile inet: its loopback is up.
	if c.Profile != "" && c.Profile != "inet" {
		t.Fatalf("profile %q is not known", c.Profile)
	}
	if c.Protocol != "" {
		run, ok := protocols[c.Protocol]
		if !ok {
			t.Fatalf("protocol %q is not known", c.Protocol)
		}
		run(t, d, c)
		return
	}
	newTrial(t, d, c).run()
}

// run executes the case and checks all of its expectations.
func (tr *trial) run() {
	tr.Helper()
	var checks []hostCheck
	for _, text := range tr.c.Expect.Host {
		check, ok := hostChecks[text]
		if !ok {
			tr.Fatalf("host: %q is not known", text)
		}
		checks = append(checks, check)
	}
	checks = append(checks, extraChecks[tr.c.ID])
	for _, check := range checks {
		if check.before != nil {
			check.before(tr)
		}
	}
	tr.execute(func(tr *trial) {
		for _, check := range checks {
			if check.during != nil {
				check.during(tr)
			}
		}
	})
	tr.judge()
	for _, check := range checks {
		if check.after != nil {
			check.after(tr)
		}
	}
}

// execute runs the case's code to its end. It calls during once, after the header, at the
// same time as the code runs.
func (tr *trial) execute(during func(*trial)) {
	tr.Helper()
	s, err := tr.d.runs.Execute(tr.Context(), tr.c.request())
	if err != nil {
		tr.Fatal(err)
	}
	header, err := s.Recv()
	if err != nil {
		tr.Fatalf("refused: %v", err)
	}
	tr.id, tr.ended = header.ExecutionId, make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		during(tr)
	}()
	rest, err := collect(tr.TB, s, header.Sequence, nil)
	close(tr.ended)
	<-done
	if err != nil && !errors.Is(err, io.EOF) {
		tr.Fatal(err)
	}
	tr.r = rest
	if rest.outcome == nil {
		tr.Fatal("no outcome")
	}
}

// judge checks the end and the output.
func (tr *trial) judge() {
	tr.Helper()
	o, out, want := tr.r.outcome, tr.r.stdout.String(), tr.c.Expect
	if ended, known := endedAs(want.Status, o); !known {
		tr.Fatalf("status %q is not known", want.Status)
	} else if !ended {
		tr.Errorf("ended as %v, want %s", o, want.Status)
	}
	for _, s := range want.Has {
		if !strings.Contains(out, s) {
			tr.Errorf("stdout has no %s", s)
		}
	}
	for line := range strings.Lines(out) {
		for _, prefix := range want.Lacks {
			if strings.HasPrefix(line, prefix) {
				tr.Errorf("%s", strings.TrimSpace(line))
			}
		}
	}
	if tr.Failed() || tr.c.Advisory {
		tr.Logf("%s\nstdout:\n%s\nstderr:\n%s", want.Text, tail(out, 3000), tail(tr.r.stderr.String(), 1500))
	}
}

// endedAs reports whether o is the end that the catalogue calls status. The catalogue's
// OUTPUT_LIMIT is not an end here: the daemon drops excess output, counts it and sets a flag,
// and the program runs to its own end or its deadline.
func endedAs(status string, o *pb.ExecutionOutcome) (ended, known bool) {
	switch status {
	case "OK":
		return o.End == pb.ExecutionEnd_EXECUTION_END_EXITED && o.GetExitCode() == 0, true
	case "EXIT":
		return o.End == pb.ExecutionEnd_EXECUTION_END_EXITED && o.GetExitCode() != 0, true
	case "SIGNAL":
		return o.End == pb.ExecutionEnd_EXECUTION_END_SIGNALED, true
	case "TIMEOUT":
		return o.End == pb.ExecutionEnd_EXECUTION_END_TIMED_OUT && o.TimedOut, true
	case "OOM":
		return o.End == pb.ExecutionEnd_EXECUTION_END_OOM_KILLED && o.Evidence.GetOomKillCount() > 0, true
	case "MEMORY": // memory that the kernel charges to no cgroup; the daemon enforces its bound
		return o.End == pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, true
	case "OUTPUT_LIMIT":
		cut := o.Stdout.GetTruncated() && o.Stdout.DeliveredBytes == o.Limits.OutputBytes && o.Stdout.TotalBytes > o.Limits.OutputBytes
		return cut && (o.End == pb.ExecutionEnd_EXECUTION_END_EXITED || o.End == pb.ExecutionEnd_EXECUTION_END_TIMED_OUT), true
	case "ANY":
		return o.End != pb.ExecutionEnd_EXECUTION_END_UNSPECIFIED && o.End != pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED && o.End != pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST, true
	}
	return false, false
}

// startHostile starts a daemon with the skill hostile, which all cases use.
func startHostile(t testing.TB, extra string) *running {
	t.Helper()
	dir := newDir(t)
	writeHostileSkill(t, dir)
	return startDaemonIn(t, dir, extra)
}

func writeHostileSkill(t testing.TB, dir string) {
	t.Helper()
	writeSkill(t, dir, "hostile", "allowed-tools: Bash", map[string]string{"data/lock": "x"})
}
