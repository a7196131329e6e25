package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skillrun/skillrun/internal/metrics"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// soakVar is the number of executions of leakSoak. Default: 300. If it is set, no other daemon may run during the test.
const soakVar = "SKILLRUN_SOAK"

// soakWarmUp is how many of these executions come before the daemon's resources are first counted: ten of each kind.
const soakWarmUp = 100

// soakClients execute at the same time, as many as the daemon has slots for each of two processors. Most of the
// programs wait for something, so fewer clients would leave the processors idle.
const soakClients = 16

// A soakKind is a kind of execution, and the end that it must have.
type soakKind struct {
	name string
	req  func() *pb.ExecuteRequest
	end  pb.ExecutionEnd
	code int32
}

var soakKinds = []soakKind{
	{"script", func() *pb.ExecuteRequest { return wall(script("soak", "scripts/add.py"), time.Minute) }, pb.ExecutionEnd_EXECUTION_END_EXITED, 0},
	{"Python", func() *pb.ExecuteRequest { return code("hostile", "open('made', 'w').write('x'); print('hi')") }, pb.ExecutionEnd_EXECUTION_END_EXITED, 0},
	{"shell", func() *pb.ExecuteRequest { return shell("hostile", "echo hi; head -c 100000 /dev/zero | tee made") }, pb.ExecutionEnd_EXECUTION_END_EXITED, 0},
	{"command", func() *pb.ExecuteRequest { return command("hostile", "ls /") }, pb.ExecutionEnd_EXECUTION_END_EXITED, 0},
	{"failure", func() *pb.ExecuteRequest { return code("hostile", "raise SystemExit(3)") }, pb.ExecutionEnd_EXECUTION_END_EXITED, 3},
	{"input", func() *pb.ExecuteRequest {
		req := shell("hostile", "cat in >out")
		req.Files = []*pb.InputFile{{Path: "in", Source: &pb.InputFile_Content{Content: make([]byte, 10_000)}}}
		return req
	}, pb.ExecutionEnd_EXECUTION_END_EXITED, 0},
	{"session", func() *pb.ExecuteRequest { return shell("hostile", "date >>log; echo x >$$") }, pb.ExecutionEnd_EXECUTION_END_EXITED, 0},
	{"cancelled", func() *pb.ExecuteRequest { return shell("hostile", "echo ready; sleep 600") }, pb.ExecutionEnd_EXECUTION_END_CANCELLED, 0},
	{"too long", func() *pb.ExecuteRequest { return wall(shell("hostile", "sleep 600"), 50*time.Millisecond) }, pb.ExecutionEnd_EXECUTION_END_TIMED_OUT, 0},
	{"out of memory", func() *pb.ExecuteRequest {
		req := code("hostile", "x = bytearray(1 << 30)")
		req.Limits = &pb.ExecutionLimits{MemoryBytes: 32 << 20}
		return req
	}, pb.ExecutionEnd_EXECUTION_END_OOM_KILLED, 0},
}

// soak executes n programs of all kinds, with a new session for every 50, and deletes their executions and sessions.
func (d *running) soak(n int) {
	d.t.Helper()
	var next atomic.Int64
	var clients sync.WaitGroup
	for range soakClients {
		clients.Go(func() {
			var u *sessionUser
			for i := next.Add(1); i <= int64(n) && !d.t.Failed(); i = next.Add(1) {
				if u == nil {
					u = d.newSession(d.t.Context(), &pb.CreateSessionRequest{})
				}
				d.soakOne(soakKinds[i%int64(len(soakKinds))], u)
				if i%50 == 0 {
					d.endSession(u)
					u = nil
				}
			}
			if u != nil {
				d.endSession(u)
			}
		})
	}
	clients.Wait()
}

func (d *running) endSession(u *sessionUser) {
	if _, err := u.sessions.DeleteSession(u.ctx, &pb.DeleteSessionRequest{SessionId: u.id}); err != nil {
		d.t.Error(err)
	}
}

// soakOne executes one program and deletes its record.
func (d *running) soakOne(kind soakKind, u *sessionUser) {
	req := kind.req()
	if kind.name == "session" {
		req.Session = &pb.SessionUse{SessionId: u.id}
	}
	stream, err := d.runs.Execute(d.t.Context(), req)
	if err != nil {
		d.t.Error(err)
		return
	}
	r, err := collect(d.t, stream, 0, func(e *pb.ExecutionEvent) {
		if kind.name != "cancelled" || e.GetOutput() == nil {
			return
		}
		if _, err := d.runs.CancelExecution(d.t.Context(), &pb.CancelExecutionRequest{ExecutionId: e.ExecutionId}); err != nil {
			d.t.Error(err)
		}
	})
	if err != nil {
		d.t.Errorf("%s: %v", kind.name, err)
		return
	}
	if o := r.outcome; o.End != kind.end || o.End == pb.ExecutionEnd_EXECUTION_END_EXITED && o.GetExitCode() != kind.code {
		d.t.Errorf("%s: ended as %v: %s", kind.name, o, r.stderr.String())
	}
	if _, err := d.runs.DeleteExecution(d.t.Context(), &pb.DeleteExecutionRequest{ExecutionId: r.id}); err != nil {
		d.t.Error(err)
	}
}

// A soaked has the resources that a daemon holds after many executions.
type soaked struct {
	holdings
	goroutines int   // without the goroutines of waiting sandboxes
	entries    int   // directory entries, see running.entries
	dying      int   // cgroups that are removed but not freed
	resident   int64 // bytes
}

func (d *running) soaked() (s soaked) {
	d.t.Helper()
	d.wantNothingLeft()
	s.holdings, s.resident = d.held(), d.residentBytes()
	until(d.t, "the pool does not rest", func() bool {
		waiting := d.waitingBoxes()
		s.goroutines = d.goroutines() - len(waiting)
		return maps.Equal(waiting, d.waitingBoxes())
	})
	s.entries, s.dying = len(d.entries()), d.dyingCgroups()
	return s
}

// goroutines returns the number of the daemon's goroutines. Each sandbox that waits has one.
func (d *running) goroutines() int {
	d.t.Helper()
	_, page := d.page(metrics.Path)
	_, rest, _ := strings.Cut(page, "\ngo_goroutines ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(line)
	if err != nil {
		d.t.Fatalf("go_goroutines: %v", err)
	}
	return n
}

// entries lists the files and directories of the daemon, without the ones of waiting sandboxes, which come and go, and
// without the files of the audit log, whose names change and whose number audit.files bounds.
func (d *running) entries() (all []string) {
	for _, top := range []string{"state", "run"} {
		_ = filepath.WalkDir(filepath.Join(d.dir, top), func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil: // just removed
				return nil
			case e.Name() == "sandboxes" || strings.HasPrefix(path, filepath.Join(d.dir, "state/sandbox/instances")) && path != d.dir:
				return fs.SkipDir // wantNothingLeft looks at them
			case strings.HasPrefix(e.Name(), "audit-"):
				return nil
			}
			all = append(all, path)
			return nil
		})
	}
	return all
}

// dyingCgroups returns the number of removed cgroups that the kernel still has. cgroup v1 counts them only together
// with all others of the machine, so there it returns 0 if other daemons may run.
func (d *running) dyingCgroups() (n int) {
	d.t.Helper()
	stat, err := os.ReadFile(filepath.Join(d.pidsGroup(), "cgroup.stat"))
	if err == nil {
		_, number, _ := strings.Cut(string(stat), "nr_dying_descendants ")
		if _, err := fmt.Sscan(number, &n); err != nil {
			d.t.Fatal(err)
		}
		return n
	}
	if os.Getenv(soakVar) == "" {
		return 0
	}
	table, err := os.ReadFile("/proc/cgroups")
	if err != nil {
		d.t.Fatal(err)
	}
	counted := map[string]bool{"0": true} // hierarchies; 0 has the controllers of cgroup v2
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // name, hierarchy, number of cgroups, enabled
		if strings.HasPrefix(line, "#") || counted[f[1]] {
			continue
		}
		counted[f[1]] = true
		all, err := strconv.Atoi(f[2])
		if err != nil {
			d.t.Fatal(err)
		}
		n += all - directories("/sys/fs/cgroup/"+f[0]+"/")
	}
	return n
}

// directories counts a directory and those beneath it.
func directories(path string) (n int) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() { // an error: it was just removed
			n++
		}
		return nil
	})
	return n
}

// leakSoak executes programs of all kinds, with cancellations, deadlines, sessions and failures. At the end the daemon
// must hold no more resources than after the first of the programs.
func leakSoak(t *testing.T, _ *running, _ hostileCase) {
	n := 300
	if slower > 1 {
		n = 120
	}
	if text := os.Getenv(soakVar); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", soakVar, err)
		}
	}
	d := startHostile(t, "listen: {unix: s.sock, metrics_tcp: \"127.0.0.1:0\"}\n")
	// A skill without a timeout: on a busy machine, in emulation, a script takes longer than the skill calculator allows.
	d.addSkill("soak", "", map[string]string{"scripts/add.py": "import argparse\nprint(1 + 2)\n"})
	// The daemon keeps both Python zygotes of these programs. On a busy machine the second one starts late.
	until(t, "there are no two Python zygotes", func() bool {
		d.works()
		d.run(wall(script("soak", "scripts/add.py"), time.Minute)).wantExit(t, 0)
		return len(d.allPythonZygotes()) == 2
	})
	d.goroutines() // keeps its connection
	warm := min(soakWarmUp, n/3)
	d.soak(warm)
	before, entries := d.soaked(), d.entries()
	d.soak(n - warm)
	var after soaked
	if !await(func() bool {
		d.works() // the garbage collector closes the files of failed starts
		after = d.soaked()
		return after.files <= before.files+2 && after.database <= mostDatabaseFiles && after.goroutines <= before.goroutines+5 && after.mounts <= before.mounts &&
			after.cgroups == before.cgroups && slices.Equal(d.entries(), entries) && after.dying <= before.dying+8 && after.resident <= before.resident+16<<20
	}) {
		without := func(all, others []string) []string {
			return slices.DeleteFunc(slices.Clone(all), func(path string) bool { return slices.Contains(others, path) })
		}
		now := d.entries()
		t.Errorf("more entries: %v, fewer: %v", without(now, entries), without(entries, now))
		t.Errorf("descriptors: %v", d.descriptors())
	}
	text := fmt.Sprintf("%d executions: before %+v, after %+v", n, before, after)
	if t.Failed() {
		t.Error(text)
	}
	t.Log(text)
}
