package main

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A hardship is a fault that the daemon outlives. Afterwards it works as before.
type hardship struct {
	name     string
	times    int  // in the whole form
	short    bool // also in the short form
	begin    func(h *underHardship) (relieve func())
	during   int64 // requests that are answered or refused before it ends
	disk     bool  // the state is on a faultDisk
	device   bool  // the disk is a disktest.Device
	config   string
	programs []faultProgram // nil: faultPrograms
	scarce   bool           // see faultLoad
	ends     []pb.ExecutionEnd
	refusals []codes.Code
}

// underHardship has the parts that a hardship harms.
type underHardship struct {
	*running
	t    *testing.T
	l    *faultLoad
	disk *faultDisk // nil without hardship.disk
}

var hardships = []hardship{
	{name: "full disk", times: 8, short: true, begin: (*underHardship).fillDisk, during: 30, disk: true, scarce: true, ends: setupFailed},
	{name: "slow disk", times: 5, begin: (*underHardship).slowDisk, during: 20, disk: true, device: true},
	{name: "no descriptors for the daemon", times: 5, begin: (*underHardship).takeDescriptors, during: 30, scarce: true, ends: append(setupFailed, pb.ExecutionEnd_EXECUTION_END_SIGNALED), refusals: []codes.Code{codes.ResourceExhausted, codes.Internal}},
	{name: "no processes for sandboxes", times: 5, begin: (*underHardship).takeProcesses, during: 30, programs: lonePrograms, scarce: true, ends: setupFailed, refusals: []codes.Code{codes.ResourceExhausted}},
	{name: "SIGSTOP of the daemon past a deadline", times: 3, begin: (*underHardship).stopPastDeadline, config: "grace: 100ms\n"},
}

var setupFailed = []pb.ExecutionEnd{pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED}

// lonePrograms need no process but their own.
var lonePrograms = []faultProgram{
	faultPrograms[0],
	func() *pb.ExecuteRequest {
		return shell("hostile", "read -r word </proc/sys/kernel/random/uuid; echo $word; echo x >made; echo end")
	},
}

func (f hardship) inject(t *testing.T, row *faultRow) {
	times := shortOrWhole(3, f.times)
	random := rand.New(rand.NewPCG(18, 6))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	h := &underHardship{t: t}
	if f.disk {
		h.disk = newFaultDisk(t, dir, 192, f.device)
	}
	h.running = startDaemonIn(t, dir, faultConfig+f.config)
	h.l = &faultLoad{programs: f.programs, ends: f.ends, scarce: f.scarce, refusals: f.refusals}
	if f.programs == nil {
		h.l.programs = faultPrograms
	}
	h.l.start(t, h.running)
	for range times {
		h.l.untilAnswers(1 + random.Int64N(30))
		relieve := f.begin(h)
		h.l.untilTried(f.during)
		relieve()
		row.times++
		h.l.untilAnswers(10) // it works again
	}
	endLoad(t, h.running, h.l, row)
}

func (h *underHardship) fillDisk() func() { return fillDisk(h.t, h.disk.state()) }

// slowDisk makes each read, write and flush of the disk take 20 ms longer. A commit takes several of them.
func (h *underHardship) slowDisk() func() {
	h.disk.device.Delay(20 * time.Millisecond)
	return func() { h.disk.device.Delay(0) }
}

// takeDescriptors leaves the daemon no more descriptors than it has.
func (h *underHardship) takeDescriptors() func() {
	h.t.Helper()
	limit := func(to *unix.Rlimit) (old unix.Rlimit) {
		if err := unix.Prlimit(h.cmd.Process.Pid, unix.RLIMIT_NOFILE, to, &old); err != nil {
			h.t.Fatal(err)
		}
		return old
	}
	old := limit(nil)
	limit(&unix.Rlimit{Cur: uint64(len(h.descriptors())), Max: old.Max})
	return func() { limit(&old) }
}

// takeProcesses leaves sandboxes and zygotes no more processes than they have.
func (h *underHardship) takeProcesses() func() {
	h.t.Helper()
	group := h.pidsGroup()
	limit := func(to string) {
		if err := os.WriteFile(filepath.Join(group, "pids.max"), []byte(to), 0); err != nil {
			h.t.Fatal(err)
		}
	}
	now, err := os.ReadFile(filepath.Join(group, "pids.current"))
	if err != nil {
		h.t.Fatal(err)
	}
	limit(strings.TrimSpace(string(now)))
	return func() { limit("max") }
}

// stopPastDeadline stops the daemon until init has ended a program at its deadline. The daemon then records this end.
func (h *underHardship) stopPastDeadline() func() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.l.tenants[0], patience)
	h.t.Cleanup(cancel)
	stream, err := h.runs.Execute(ctx, wall(code("hostile", stubborn), startsWithin))
	if err != nil {
		h.t.Fatal(err)
	}
	ready, ended := make(chan string, 1), make(chan *result, 1)
	go func() {
		defer close(ready)
		r, err := collect(h.t, stream, 0, func(e *pb.ExecutionEvent) {
			if e.GetOutput() != nil {
				ready <- e.ExecutionId
			}
		})
		if err != nil {
			h.t.Error(err)
		}
		ended <- r
	}()
	id := <-ready
	if id == "" {
		h.t.Fatalf("it ended before it printed anything: %v", (<-ended).outcome)
	}
	h.cmd.Process.Signal(syscall.SIGSTOP)
	defer h.cmd.Process.Signal(syscall.SIGCONT)
	untilNone(h.t, "processes of "+id+" live on", func() (left []string) {
		for _, pid := range h.processes(id) {
			// init may wait until the daemon has its report.
			if status := statusOf(pid); !strings.HasSuffix(status["NSpid"], "\t1") {
				left = append(left, strings.Join([]string{pid, status["Name"], status["State"], status["NSpid"]}, " "))
			}
		}
		return left
	})
	return func() {
		r := <-ended
		if r.outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_TIMED_OUT || r.outcome.Evidence.GetDeadline() != pb.ExecutionDeadline_EXECUTION_DEADLINE_WALL {
			h.t.Errorf("%s ended as %v, want TIMED_OUT by the wall deadline", id, r.outcome)
		}
	}
}

// daemonStarved is a row of TestFaults: the daemon's memory runs out, and the kernel kills it.
func daemonStarved(t *testing.T, row *faultRow) {
	random := rand.New(rand.NewPCG(18, 7))
	dir := newDir(t)
	writeHostileSkill(t, dir)
	group, limit, extra := limitedDaemon(t, "faults")
	d := startInGroup(t, dir, faultConfig+extra, group)
	l := startLoad(t, d, lostWithDaemon...)
	l.refusals = []codes.Code{codes.ResourceExhausted}
	big := code("hostile", "#"+strings.Repeat("A", 2<<20))
	for range 5 {
		l.untilAnswers(1 + random.Int64N(40))
		dead := d.doomed()
		if err := limitMemory(group, 0); err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for range 8 { // their requests need memory
			callers.Go(func() {
				for !d.hasExited() && t.Context().Err() == nil {
					s, err := d.runs.Execute(l.tenants[0], big)
					for err == nil {
						_, err = s.Recv()
					}
				}
			})
		}
		until(t, "the kernel does not kill the daemon", d.hasExited)
		callers.Wait()
		if text := d.cmd.ProcessState.String(); text != "signal: killed" {
			t.Fatalf("the daemon ended by itself: %s\n%s", text, tail(d.log.String(), 2000))
		}
		if err := os.WriteFile(filepath.Join(group, limit), []byte("8G"), 0); err != nil {
			t.Fatal(err)
		}
		row.times++
		d = startInGroup(t, dir, faultConfig+extra, group)
		row.left += d.leftOf(dead)
	}
	endLoad(t, d, l, row)
}

// groupKept is a row of TestFaults: a process that can't be killed keeps the cgroup of a sandbox. Executions go on, in
// other sandboxes. When the process has ended, the end of the daemon or the next start removes the cgroup; before, a next
// daemon does not start.
func groupKept(t *testing.T, row *faultRow) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	frozen := filepath.Join(dir, "frozen")
	newDisk(t, filepath.Join(dir, "disk"), frozen, 8)
	d := startDaemonIn(t, dir, faultConfig)
	l := startLoad(t, d, lostWithDaemon...)
	for n := range 4 {
		l.untilAnswers(10)
		dead := d.doomed()
		said := strings.Count(d.log.String(), groupStays)
		e, _ := d.untilOutput(l.tenants[0], code("hostile", stubborn))
		end := unkillable(t, frozen, func(pid int) { moveInto(t, d.boxesOfExecution(e.ExecutionId), pid) })
		if _, err := d.runs.CancelExecution(l.tenants[0], &pb.CancelExecutionRequest{ExecutionId: e.ExecutionId}); err != nil {
			t.Error(err)
		}
		until(t, "the daemon removes the cgroup", func() bool { return strings.Count(d.log.String(), groupStays) > said })
		l.untilAnswers(20)
		if n%2 == 0 {
			end()
			d.stop()
		} else { // no daemon serves while a process of the dead one lives
			d.kill()
			next := launch(t, dir, faultConfig)
			until(t, "the next daemon serves", next.hasExited)
			if log := next.log.String(); !strings.Contains(log, "sweep of instance "+dead.name) {
				t.Errorf("the next daemon does not say what is left:\n%s", tail(log, 1000))
			}
			end()
		}
		row.times++
		d = startDaemonIn(t, dir, faultConfig)
		row.left += d.leftOf(dead)
	}
	endLoad(t, d, l, row)
}

// groupStays is in the daemon's log if it can't remove a sandbox.
const groupStays = "sandbox was not removed"

// unkillable starts a process that no signal ends, because it writes to a frozen disk, and gives it to use. end thaws the
// disk and waits until the process has ended.
func unkillable(t *testing.T, disk string, use func(pid int)) (end func()) {
	t.Helper()
	freeze := func(flag string) {
		if out, err := exec.Command("/usr/sbin/fsfreeze", flag, disk).CombinedOutput(); err != nil {
			t.Errorf("fsfreeze %s: %v %s", flag, err, out)
		}
	}
	freeze("--freeze")
	cmd := exec.Command("/bin/sh", "-c", `exec >"$0"`, filepath.Join(disk, "file"))
	if err := cmd.Start(); err != nil {
		freeze("--unfreeze")
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		freeze("--unfreeze")
		_ = cmd.Wait() // the daemon may have killed it
	})
	t.Cleanup(end)
	until(t, "the process does not wait for the disk", func() bool {
		return strings.HasPrefix(statusOf(strconv.Itoa(cmd.Process.Pid))["State"], "D")
	})
	use(cmd.Process.Pid)
	return end
}

// moveInto moves a process into the cgroups of boxes.
func moveInto(t *testing.T, boxes []*box, pid int) {
	t.Helper()
	moved := 0
	for _, b := range boxes {
		for _, path := range b.paths {
			if err := os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
				t.Error(err)
			}
			moved++
		}
	}
	if moved == 0 {
		t.Fatal("no cgroup takes the process")
	}
}
