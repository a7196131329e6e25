package main

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A hostCheck checks an expectation about the host. One of its functions runs before the case,
// one at the same time, and one after it. Each may be nil.
type hostCheck struct{ before, during, after func(*trial) }

// hostChecks maps each sentence of the catalogue about the host to its check.
var hostChecks = map[string]hostCheck{
	"collect output files [out.txt, env.txt, magic.txt, rel.txt, rootdir/etc/shadow, real/link/passwd] through the API: each must be reported as refused/symlink, and no byte of any HOST file may be returned": {after: linksAreRefused},
	"while it runs, collect /workspace/cur/result.txt and /workspace/cur/passwd 1000 times: never host content":                                                                                                 {during: collectWhileItRuns, after: onlyItsOwnResult},
	"collect result.json and sock: the call returns within 1 s with 'not a regular file'":                                                                                                                       {after: pipesAreRefused},
	"list+collect all outputs: response is valid protobuf (names as bytes or escaped), no gRPC INTERNAL 'invalid UTF-8', logs escaped, cleanup leaves nothing":                                                  {after: oddNamesComeBack},
	"after the run: no file, mount, process or cgroup of the execution remains":                                                                                                                                 {after: nothingRemains},
	"the daemon reports the run as ended only after it really exited: WallMs >= 1000, exit code 0; no process left":                                                                                             {after: ranASecond},
	"before: start listeners on host 127.0.0.1, ::1 on the daemon's own gRPC and metrics ports; after: their accept count is 0":                                                                                 {before: listenOnLoopback, after: nobodyCame},
	"before: host process listens on abstract socket @hostile-probe":                                                                                                                                            {before: listenAbstract, after: nobodyCame},
	"host load, other tenants' p99 and daemon unaffected":                                                                                                                                                       {during: neighbourRuns},
	"pids.events max > 0":                               {after: forksWereRefused},
	"0 processes of the execution 1 s after the result": {after: nothingRemains},
	"0 processes of this execution 1 s later":           {after: nothingRemains},
	"WallMs < 1500":                                     {after: didNotWait},
	"WallMs < 1500: the reader does not wait for EOF held by a background child": {after: didNotWait},
	"daemon RSS grows by less than 2 x the output limit":                         {before: measureDaemon, after: daemonStayedSmall},
	"CPU used by the execution / wall <= cpu limit * 1.1":                        {after: cpuWithinItsShare},
	"nr_throttled > 0": {during: isThrottled, after: cpuDeadline},
}

// extraChecks has the checks of cases that describe their expectation only in their text.
var extraChecks = map[string]hostCheck{
	"k-14-credentials":                {after: idsAreNobodys},
	"k-18-seccomp-selfcheck":          {after: reachableIsGolden},
	"res-13-output-no-newline-binary": {after: binaryCameBack},
	"res-14-both-streams-flood":       {after: bothStreamsCut},
	"res-21-closed-stdout":            {after: func(tr *trial) { tr.r.wantExit(tr, 7) }},
	"res-24-kill-all":                 {during: neighbourRuns, after: nothingRemains},
	"res-17-sleep-forever":            {after: wallDeadline},
	"res-15-cpu-spin":                 {after: wallDeadline},
	"res-18-sigterm-ignoring":         {after: wallDeadline},
	"res-25-sigstop-self":             {after: nothingRemains},
	"res-22-zombie-flood":             {after: nothingRemains},
	"res-02-fork-until-eagain":        {after: forksWereRefused},
	"res-03-thread-bomb":              {after: forksWereRefused},
	"fs-13-sparse-output":             {after: noBigArtifact},
}

// hostWords returns words of the host's files that are in no file of a sandbox. A case that
// prints one has read the host's file.
func hostWords(t testing.TB) [][]byte {
	t.Helper()
	shadow, err := os.ReadFile("/etc/shadow")
	if err != nil {
		t.Fatal(err)
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	words := [][]byte{[]byte("DAEMON_SECRET"), []byte("daemon:x:1:1"), bytes.SplitN(shadow, []byte("\n"), 2)[0]}
	if !bytes.Contains(passwd, words[1]) {
		t.Fatalf("this machine's /etc/passwd has no %s; the check would prove nothing", words[1])
	}
	return words
}

// tryArtifact reads one artifact and returns any error to the caller.
func (tr *trial) tryArtifact(req *pb.GetArtifactRequest) ([]byte, error) {
	req.ExecutionId = tr.id
	s, err := tr.d.runs.GetArtifact(tr.Context(), req)
	if err != nil {
		return nil, err
	}
	var data []byte
	for {
		m, err := s.Recv()
		if err != nil {
			if len(data) > 0 || strings.Contains(err.Error(), "EOF") {
				return data, nil
			}
			return nil, err
		}
		data = append(data, m.Data...)
	}
}

func (tr *trial) wantRefused(reason string, paths ...string) {
	tr.Helper()
	for _, path := range paths {
		if !slices.ContainsFunc(tr.r.outcome.ArtifactsRefused, func(s string) bool {
			return strings.HasPrefix(s, path+": ") && strings.Contains(s, reason)
		}) {
			tr.Errorf("%s is not among the refused as %s: %q", path, reason, tr.r.outcome.ArtifactsRefused)
		}
	}
}

func linksAreRefused(tr *trial) {
	for _, path := range []string{"out.txt", "env.txt", "magic.txt", "rel.txt", "rootdir/etc/shadow", "real/link/passwd", "rootdir", "real/link"} {
		data, err := tr.tryArtifact(&pb.GetArtifactRequest{Path: path})
		if err == nil {
			tr.Errorf("%s came back: %q", path, tail(string(data), 100))
			continue
		}
		wantStatus(tr, err, "NotFound", "ARTIFACT_NOT_FOUND")
	}
	tr.wantRefused("symbolic link", "out.txt", "env.txt", "magic.txt", "rel.txt", "rootdir", "real/link")
	if n := tr.r.outcome.ArtifactCount; n != 0 {
		tr.Errorf("%d artifacts %v, want none", n, tr.r.outcome.Artifacts)
	}
}

func collectWhileItRuns(tr *trial) {
	words := hostWords(tr)
	for range 1000 {
		select {
		case <-tr.ended: // a slow machine may not finish all rounds
			return
		default:
		}
		for _, path := range []string{"cur/result.txt", "cur/passwd"} {
			data, err := tr.tryArtifact(&pb.GetArtifactRequest{Path: path})
			if err == nil && string(data) != "harmless" {
				tr.Errorf("%s: %q", path, tail(string(data), 100))
				return
			}
			for _, w := range words {
				if bytes.Contains(data, w) {
					tr.Errorf("%s has the host's %q", path, w)
				}
			}
		}
	}
}

func onlyItsOwnResult(tr *trial) {
	for _, a := range tr.r.outcome.Artifacts {
		data, err := tr.tryArtifact(&pb.GetArtifactRequest{Path: a.Path})
		if err != nil || string(data) != "harmless" {
			tr.Errorf("artifact %s: %q, %v", a.Path, tail(string(data), 100), err)
		}
	}
	if n := len(tr.r.outcome.Artifacts); n != 1 {
		tr.Errorf("%d artifacts, want the one file", n)
	}
}

func pipesAreRefused(tr *trial) {
	tr.wantRefused("named pipe", "result.json", "again.json", "sub/late")
	tr.wantRefused("socket", "sock")
	for _, path := range []string{"result.json", "sock", "sub/late"} {
		_, err := tr.tryArtifact(&pb.GetArtifactRequest{Path: path})
		wantStatus(tr, err, "NotFound", "ARTIFACT_NOT_FOUND")
	}
	if o := tr.r.outcome; o.ArtifactCount != 1 || o.Artifacts[0].Path != "plain.txt" {
		tr.Errorf("artifacts %v, want plain.txt", o.Artifacts)
	}
}

func oddNamesComeBack(tr *trial) {
	o := tr.r.outcome
	if o.ArtifactCount < 26 || len(o.Artifacts) != int(o.ArtifactCount) {
		tr.Errorf("%d artifacts listed, %d counted; want 26", len(o.Artifacts), o.ArtifactCount)
	}
	for _, a := range o.Artifacts {
		if !utf8.ValidString(a.Path) {
			tr.Errorf("path %q is not UTF-8", a.Path)
		}
		name := []byte(a.Path)
		if len(a.RawPath) > 0 {
			name = a.RawPath
		}
		data, err := tr.tryArtifact(&pb.GetArtifactRequest{RawPath: name})
		if err != nil {
			tr.Errorf("%q: %v", name, err)
			continue
		}
		switch {
		case bytes.HasSuffix(name, []byte("/leaf")), bytes.HasSuffix(name, []byte("/\n")):
		case !bytes.Equal(data, name):
			tr.Errorf("%q holds %q", name, data)
		}
	}
	if _, err := tr.d.runs.GetExecution(tr.Context(), &pb.GetExecutionRequest{ExecutionId: tr.id}); err != nil {
		tr.Errorf("get: %v", err)
	}
	if s := strings.Join(o.ArtifactsRefused, ""); !utf8.ValidString(s) || strings.ContainsAny(s, "\n\x1b") {
		tr.Errorf("the refused are not escaped: %q", s)
	}
	for line := range strings.Lines(tr.d.log.String()) {
		if strings.HasPrefix(line, "level=error") || strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x1b\r") || !utf8.ValidString(line) {
			tr.Errorf("the log has the line %q", line)
		}
	}
	nothingRemains(tr)
}

// nothingRemains waits until no cgroup, process, mount or file of the execution is left. A
// prewarmed box without an init could be any execution's, so each box that is in this state
// at the start must disappear or get an init.
func nothingRemains(tr *trial) {
	tr.Helper()
	nobodys := map[string]bool{}
	for _, b := range boxesOf(tr.d.instance()) {
		if b.sandbox() && b.init == "" {
			nobodys[b.identity()] = true
		}
	}
	untilNone(tr, "left behind", func() []string {
		left := tr.d.leftoversOf(tr.id)
		for _, b := range boxesOf(tr.d.instance()) {
			if b.sandbox() && b.init == "" && nobodys[b.identity()] {
				left = append(left, b.String())
			}
		}
		return left
	})
}

// leftoversOf lists the cgroups, mounts and files of one execution.
func (d *running) leftoversOf(id string) []string {
	var left []string
	names := map[string]bool{}
	for _, b := range d.boxesOfExecution(id) {
		left = append(left, b.String())
		names[strings.TrimPrefix(b.name, "_")] = true
	}
	for _, line := range d.mountLines() {
		if strings.Contains(line, id) || names[d.sandboxOf(line)] {
			left = append(left, "mount "+line)
		}
	}
	for _, dir := range []string{"run", "state/staging", "state/uploads", "state/sandbox"} {
		filepath.WalkDir(filepath.Join(d.dir, dir), func(path string, _ os.DirEntry, _ error) error {
			if strings.Contains(filepath.Base(path), id) {
				left = append(left, "file "+path)
			}
			return nil
		})
	}
	return left
}

// wantNoProcess waits until every process in the daemon's cgroups belongs to the zygote or to
// a waiting sandbox.
func (d *running) wantNoProcess() {
	d.t.Helper()
	instance := d.instance()
	if instance == "" {
		d.t.Fatal("the daemon has no instance; the check looks in the wrong place")
	}
	untilNone(d.t, "processes are left", func() []string { return d.strays(instance) })
}

// strays lists the processes of the machine that are in a cgroup of the instance and
// belong neither to the zygote nor to a sandbox that waits.
func (d *running) strays(instance string) (left []string) {
	entries, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		d.t.Fatal(err)
	}
	found := map[string]bool{}
	for _, path := range entries {
		data, _ := os.ReadFile(path)
		if !bytes.Contains(data, []byte(instance+"/")) {
			continue
		}
		pid := filepath.Base(filepath.Dir(path))
		found[pid] = true
	}
	for _, b := range boxesOf(instance) { // after the search, so that processes started since then are not in found
		if b.name != zygoteBox && !b.waits() {
			continue
		}
		var home string // the only PID namespace that processes of b may be in
		if b.init != "" {
			home, _ = os.Readlink("/proc/" + b.init + "/ns/pid")
		}
		for _, pid := range b.pids {
			if at, err := os.Readlink("/proc/" + pid + "/ns/pid"); err == nil && at == home {
				delete(found, pid)
			}
		}
	}
	for pid := range found {
		if cmdline, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil {
			left = append(left, fmt.Sprintf("process %s: %q", pid, cmdline))
		}
	}
	return left
}

// idsAreNobodys checks from outside that no process of an execution has the ids of root or
// of an account.
func idsAreNobodys(tr *trial) {
	id := tr.d.hold(1, code("hostile", stubborn))[0]
	pids := tr.d.processes(id)
	if len(pids) < 2 {
		tr.Errorf("processes %v; the check looks in the wrong place", pids)
	}
	for _, pid := range pids {
		status := statusOf(pid)
		for _, text := range strings.Fields(status["Uid"] + " " + status["Gid"] + " " + status["Groups"]) {
			if n, err := strconv.Atoi(text); err != nil || n < 1<<16 {
				tr.Errorf("process %s (%s) has ids %q, %q, %q", pid, status["Name"], status["Uid"], status["Gid"], status["Groups"])
			}
		}
	}
	if _, err := tr.d.runs.CancelExecution(tr.Context(), &pb.CancelExecutionRequest{ExecutionId: id}); err != nil {
		tr.Error(err)
	}
	tr.d.attach(id, 0)
}

func ranASecond(tr *trial) {
	if got := tr.r.outcome.Usage.GetWallTime().AsDuration(); got < time.Second {
		tr.Errorf("reported as ended after %s", got)
	}
	tr.r.wantExit(tr, 0)
	nothingRemains(tr)
}

// A loopbackProbe counts the connections to its listeners.
type loopbackProbe struct {
	listeners []net.Listener
	came      *atomic.Int64
}

func (p *loopbackProbe) listen(tr *trial, network, address string) {
	l, err := net.Listen(network, address)
	if err != nil {
		if strings.Contains(err.Error(), "in use") || strings.Contains(err.Error(), "cannot assign") {
			tr.Logf("%s %s: %v", network, address, err)
			return
		}
		tr.Fatal(err)
	}
	p.listeners = append(p.listeners, l)
	tr.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.came.Add(1)
			c.Close()
		}
	}()
}

// listenOnLoopback listens on the ports that the case tries. The daemon listens on no port
// if its sandboxes can reach the host's network.
func listenOnLoopback(tr *trial) {
	p := &loopbackProbe{came: new(atomic.Int64)}
	for _, port := range []int{2375, 5432, 6379, 9090, 50051} {
		p.listen(tr, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		p.listen(tr, "tcp", net.JoinHostPort("::1", strconv.Itoa(port)))
	}
	if len(p.listeners) < 5 {
		tr.Fatalf("%d listeners; the check would prove nothing", len(p.listeners))
	}
	tr.kept = p
}

func listenAbstract(tr *trial) {
	p := &loopbackProbe{came: new(atomic.Int64)}
	p.listen(tr, "unix", "@hostile-probe")
	if len(p.listeners) != 1 {
		tr.Fatal("somebody else listens on @hostile-probe")
	}
	tr.kept = p
}

func nobodyCame(tr *trial) {
	p := tr.kept.(*loopbackProbe)
	if n := p.came.Load(); n != 0 {
		tr.Errorf("%d connections came out of the sandbox", n)
	}
	// The counter works: it counts a connection of the test.
	c, err := net.Dial(p.listeners[0].Addr().Network(), p.listeners[0].Addr().String())
	if err != nil {
		tr.Fatal(err)
	}
	defer c.Close()
	c.Read(make([]byte, 1)) // returns after the listener has counted and closed it
	if p.came.Load() == 0 {
		tr.Error("a connection of the test's own is not counted")
	}
}

// neighbourRuns runs other executions at the same time. None may fail.
func neighbourRuns(tr *trial) {
	for i := range 3 {
		r, err := tr.d.try(code("hostile", fmt.Sprintf("print(%d)", i)))
		if err != nil {
			tr.Errorf("a neighbour: %v", err)
			return
		}
		r.wantStdout(tr, fmt.Sprintf("%d\n", i))
	}
}

func forksWereRefused(tr *trial) {
	if tr.r.outcome.Evidence.GetPidsMaxCount() == 0 {
		tr.Errorf("evidence %v, want refused forks", tr.r.outcome.Evidence)
	}
	nothingRemains(tr)
}

// didNotWait checks that the execution ended before its wall time, by its own exit. The
// background child holds the output open for much longer, so nothing waited for the child.
func didNotWait(tr *trial) {
	o := tr.r.outcome
	if o.End != pb.ExecutionEnd_EXECUTION_END_EXITED || o.Usage.GetWallTime().AsDuration() >= o.Limits.WallTime.AsDuration() {
		tr.Errorf("ended as %v", o)
	}
}

func wallDeadline(tr *trial) {
	if got := tr.r.outcome.Evidence.GetDeadline(); got != pb.ExecutionDeadline_EXECUTION_DEADLINE_WALL {
		tr.Errorf("deadline %v, want the wall's", got)
	}
	nothingRemains(tr)
}

// residentBytes returns the daemon's anonymous memory in bytes (RssAnon, proc_pid_status(5)).
func (d *running) residentBytes() int64 { return d.statusBytes("RssAnon") }

// peakBytes returns the daemon's highest resident memory in bytes since forgetPeak, or since
// its start (VmHWM, proc_pid_status(5)).
func (d *running) peakBytes() int64 { return d.statusBytes("VmHWM") }

// forgetPeak sets the peak to the present resident memory (clear_refs, proc_pid_clear_refs(5)).
func (d *running) forgetPeak() {
	d.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.cmd.Process.Pid), []byte("5"), 0); err != nil {
		d.t.Fatal(err)
	}
}

// statusBytes returns a size of /proc/PID/status of the daemon. The file has KiB.
func (d *running) statusBytes(name string) int64 {
	d.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				d.t.Fatal(err)
			}
			return kb << 10
		}
	}
	d.t.Fatal("no " + name)
	return 0
}

// heapSlack is how many bytes a Go heap may grow with garbage of other cases that run at the
// same time. A flood is many times larger.
const heapSlack = 64 << 20

func measureDaemon(tr *trial) { tr.kept = tr.d.residentBytes() }

func daemonStayedSmall(tr *trial) {
	o := tr.r.outcome
	grown := tr.d.residentBytes() - tr.kept.(int64)
	if bound := 2*int64(o.Limits.OutputBytes) + heapSlack; grown > bound {
		tr.Errorf("the daemon grew by %d MiB of %d MiB that were printed", grown>>20, o.Stdout.TotalBytes>>20)
	}
	if o.Stdout.TotalBytes < 4*heapSlack {
		tr.Logf("only %d MiB were printed; the bound on memory was hardly tried", o.Stdout.TotalBytes>>20)
	}
}

// exitCPU is processor time of one killed process. The quota does not hold back its exit,
// because the kernel throttles a process only where it returns to its program.
const exitCPU = 5 * time.Millisecond

// cpuWithinItsShare checks that all processes together used at most the share of processors
// that the execution asked for, plus 10 %, plus the time of their exits.
func cpuWithinItsShare(tr *trial) {
	o := tr.r.outcome
	if o.Limits.MilliCpus == 0 {
		tr.Fatal("it asked for no limit of processors")
	}
	used, wall := o.Usage.GetCpuUser().AsDuration()+o.Usage.GetCpuSystem().AsDuration(), o.Usage.GetWallTime().AsDuration()
	exits := exitCPU * time.Duration(o.Limits.Processes)
	if most := wall*time.Duration(o.Limits.MilliCpus)/1000*11/10 + exits; used > most {
		tr.Errorf("CPU %s in %s, want at most %s", used, wall, most)
	}
}

// isThrottled waits until the kernel has throttled the execution's cgroup (cpu.stat).
func isThrottled(tr *trial) {
	throttled := false
	await(func() bool {
		throttled = slices.ContainsFunc(tr.d.boxesOfExecution(tr.id), (*box).throttled)
		select {
		case <-tr.ended:
			return true
		default:
			return throttled
		}
	})
	if !throttled {
		tr.Error("it was never held up")
	}
}

// throttled says whether the kernel has throttled the cgroup.
func (b *box) throttled() bool {
	for _, path := range b.paths {
		stat, _ := os.ReadFile(filepath.Join(path, "cpu.stat"))
		for line := range strings.Lines(string(stat)) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "nr_throttled" && f[1] != "0" {
				return true
			}
		}
	}
	return false
}

// cpuDeadline checks that cpu_time also bounds the sum over all processes.
func cpuDeadline(tr *trial) {
	req := tr.c.request()
	req.Limits.CpuTime = durationpb.New(2 * time.Second)
	req.Limits.WallTime = durationpb.New(4 * time.Minute) // on a busy machine the default is too short for 2 s of CPU time
	req.Limits.MilliCpus = 0
	r := tr.d.run(req)
	if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_TIMED_OUT || r.outcome.Evidence.GetDeadline() != pb.ExecutionDeadline_EXECUTION_DEADLINE_CPU {
		tr.Errorf("with a limit of CPU time: ended as %v, want the CPU deadline over the sum of all processes", r.outcome)
	}
}

func binaryCameBack(tr *trial) {
	var line []byte
	for b := range 256 {
		if b != '\n' {
			line = append(line, byte(b))
		}
	}
	line = append(line, 0xff)
	if want := bytes.Repeat(line, 240); !bytes.Equal(tr.r.stdout.Bytes(), want) {
		tr.Errorf("%d bytes, want the %d that were printed", tr.r.stdout.Len(), len(want))
	}
}

func bothStreamsCut(tr *trial) {
	for name, cut := range map[string]*pb.OutputTruncation{"stdout": tr.r.outcome.Stdout, "stderr": tr.r.outcome.Stderr} {
		if !cut.GetTruncated() || cut.DeliveredBytes != tr.r.outcome.Limits.OutputBytes {
			tr.Errorf("%s: %v, want it cut at the limit", name, cut)
		}
	}
	nothingRemains(tr)
}

func noBigArtifact(tr *trial) {
	for _, a := range tr.r.outcome.Artifacts {
		if a.SizeBytes > tr.r.outcome.Limits.WorkspaceBytes {
			tr.Errorf("artifact %s of %d bytes", a.Path, a.SizeBytes)
		}
	}
}

// reachableList lists the system calls that a sandbox reaches on x86-64. A test of package
// seccomp writes it. Each line has a number, a name and an answer.
const reachableList = "../../sandbox/internal/seccomp/testdata/syscalls-x86_64.golden"

// newerThanSome is the first system call of Linux 5.1 and later. Some kernels and versions of
// libseccomp do not know these calls.
const newerThanSome = 424

// sometimesReached has calls whose answer depends on the machine. libseccomp 2.5 has no names
// for some calls that the filter allows, so the list has them as refused. The kernel lets its
// trampolines uretprobe and uprobe past every filter; they end a program that calls them.
var sometimesReached = []int{335, 336, 453, 462, 464, 465, 466}

// reachableIsGolden compares the system calls that a sandbox reaches with the list in the
// repository, so that a reviewer sees every change of the filter.
func reachableIsGolden(tr *trial) {
	data, err := os.ReadFile(reachableList)
	if err != nil {
		tr.Fatal(err)
	}
	listed := map[int]bool{}
	for line := range strings.Lines(string(data)) {
		var n int
		var name, answer string
		if _, err := fmt.Sscan(line, &n, &name, &answer); err == nil && answer == "reached" {
			listed[n] = true
		}
	}
	reached := map[int]bool{}
	for line := range strings.Lines(tr.r.stdout.String()) {
		var n int
		if _, err := fmt.Sscanf(line, "reached %d", &n); err == nil {
			reached[n] = true
		}
	}
	if len(listed) < 200 {
		tr.Errorf("%d calls in %s; the check would prove nothing", len(listed), reachableList)
	}
	for n := range reached {
		if !listed[n] && !slices.Contains(sometimesReached, n) {
			tr.Errorf("system call %d can be reached and is not in %s", n, reachableList)
		}
	}
	for n := range listed {
		if !reached[n] && n < newerThanSome {
			tr.Errorf("system call %d is in %s and can't be reached", n, reachableList)
		}
	}
	if tr.Failed() {
		tr.Logf("reached: %v", slices.Sorted(maps.Keys(reached)))
	}
}
