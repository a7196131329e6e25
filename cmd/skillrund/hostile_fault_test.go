package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/skillrun/skillrun/internal/disktest"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// Each fault has its own daemon. Where a daemon must die, the test kills it with SIGKILL and
// starts the next daemon on the same directories.

// startingAtOnce is how many executions of a group may start at the same time. If all
// started at once on a slow machine, some would miss their deadlines.
const startingAtOnce = 4

// hold starts n executions and returns their ids once each has printed something. They run
// until their deadline, 10 minutes if req sets none.
func (d *running) hold(n int, req *pb.ExecuteRequest) []string {
	d.t.Helper()
	if req.Limits.GetWallTime() == nil {
		wall(req, 10*time.Minute)
	}
	ids := make([]string, n)
	places := make(chan struct{}, startingAtOnce)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			s, err := d.runs.Execute(d.t.Context(), req)
			for err == nil && ids[i] == "" {
				var e *pb.ExecutionEvent
				if e, err = s.Recv(); err == nil && e.GetOutput() != nil {
					ids[i] = e.ExecutionId
				} else if e.GetOutcome() != nil {
					d.t.Errorf("%s ended before it printed anything: %v", e.ExecutionId, e.GetOutcome())
				}
			}
			if err != nil {
				d.t.Error(err)
			}
		})
	}
	wg.Wait()
	if slices.Contains(ids, "") {
		d.t.Fatalf("not all of %d run", n)
	}
	return ids
}

// begins starts an execution and returns its id once it has printed something, "" if it
// could not be started.
func (d *running) begins(req *pb.ExecuteRequest) (id string, err error) {
	s, err := d.runs.Execute(d.t.Context(), req)
	if err != nil {
		return "", err
	}
	for {
		e, err := s.Recv()
		if err != nil {
			return "", err
		}
		if e.GetOutput() != nil {
			return e.ExecutionId, nil
		}
		if o := e.GetOutcome(); o != nil {
			if o.End != pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED {
				d.t.Errorf("%s ended before it printed anything: %v", e.ExecutionId, o)
			}
			return "", nil
		}
	}
}

// release cancels executions and waits until they have ended.
func (d *running) release(ids []string) {
	d.t.Helper()
	for _, id := range ids {
		if _, err := d.runs.CancelExecution(d.t.Context(), &pb.CancelExecutionRequest{ExecutionId: id}); err != nil {
			d.t.Error(err)
		}
	}
	for _, id := range ids {
		if r := d.attach(id, 0); r.outcome.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
			d.t.Errorf("%s ended as %v, want CANCELLED", id, r.outcome)
		}
	}
}

// answers waits until the daemon executes programs again (true) or has exited (false).
func (d *running) answers() (yes bool) {
	d.t.Helper()
	until(d.t, "the daemon neither answers nor exits", func() bool {
		_, err := d.try(code("hostile", "print('works')"))
		yes = err == nil
		return yes || d.hasExited()
	})
	return yes
}

// hasExited reports whether the daemon's process has ended.
func (d *running) hasExited() bool {
	select {
	case err := <-d.exited:
		d.exited <- err
		return true
	default:
		return false
	}
}

// wantSwept checks that nothing of a dead instance remains and that its executions have
// ended as lost.
func (d *running) wantSwept(dead string, lost ...string) {
	d.t.Helper()
	if groups := cgroupsOf(dead); len(groups) > 0 {
		d.t.Errorf("cgroups of the dead daemon: %v", groups)
	}
	for _, dir := range []string{"run", "state/sandbox/instances"} {
		entries, err := os.ReadDir(filepath.Join(d.dir, dir))
		if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() == dead {
			d.t.Errorf("%s holds %v, %v; want only the new one's", dir, entries, err)
		}
	}
	for _, id := range lost {
		if r := d.attach(id, 0); r.outcome.End != pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST {
			d.t.Errorf("%s ended as %v, want DAEMON_LOST", id, r.outcome.End)
		}
	}
	d.works()
	d.wantNoProcess()
}

// within waits for done, and fails the test after patience.
func within(t testing.TB, done <-chan struct{}, otherwise string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal(otherwise)
	}
}

// tell sends to a channel for which a test may be waiting.
func tell(events chan<- struct{}) {
	select {
	case events <- struct{}{}:
	default:
	}
}

// processes lists the processes of one execution.
func (d *running) processes(id string) (pids []string) {
	for _, b := range d.boxesOfExecution(id) {
		pids = append(pids, b.pids...)
	}
	return pids
}

// untilNoProcess waits until an execution has no process. It does not ask the daemon.
func (d *running) untilNoProcess(id string) {
	d.t.Helper()
	until(d.t, "processes of "+id+" live on", func() bool { return len(d.processes(id)) == 0 })
}

const stubborn = `import os, signal, time
for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)
if os.fork() == 0: os.setsid()
else: print('ready', flush=True)
time.sleep(600)`

func killedMidRun(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	const extra = "concurrency: {running: 20}\n"
	d := startDaemonIn(t, dir, extra)
	ids := d.hold(20, code("hostile", stubborn))
	dead := d.instance()
	if n := len(usedBoxes(dead)); n < 20 {
		t.Fatalf("%d cgroups of 20 executions; the check looks in the wrong place", n)
	}
	d.kill()
	d = startDaemonIn(t, dir, extra)
	d.wantSwept(dead, ids...)
	// The same at random moments, while the daemon is busy.
	random := rand.New(rand.NewPCG(7, 7))
	for range 3 {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var begun []string
		events := make(chan struct{}, 1)
		for range 6 {
			wg.Go(func() {
				for ctx.Err() == nil {
					s, err := d.runs.Execute(ctx, shell("hostile", "echo out; echo x >f"))
					if err != nil {
						return
					}
					e, err := s.Recv()
					if err != nil {
						return
					}
					mu.Lock()
					begun = append(begun, e.ExecutionId)
					mu.Unlock()
					for err == nil {
						tell(events)
						_, err = s.Recv()
					}
				}
			})
		}
		for range 1 + random.IntN(60) { // the random moment
			within(t, events, "nothing begins")
		}
		dead = d.instance()
		d.kill()
		cancel()
		wg.Wait()
		d = startDaemonIn(t, dir, extra)
		d.wantSwept(dead)
		for _, id := range begun { // the daemon knows every answered execution, and how it ended
			if r := d.attach(id, 0); r.outcome.End != pb.ExecutionEnd_EXECUTION_END_DAEMON_LOST && r.outcome.End != pb.ExecutionEnd_EXECUTION_END_EXITED && r.outcome.End != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
				t.Errorf("%s ended as %v", id, r.outcome)
			}
		}
	}
}

func parentDeathSignalCleared(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	ids := d.hold(1, code("hostile", "import ctypes, os, time\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\nif os.fork() == 0: os.setsid(); ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\nelse: print('ready', flush=True)\ntime.sleep(600)"))
	dead := d.instance()
	d.kill()
	d.untilNoProcess(ids[0]) // no daemon has swept yet
	d = startDaemonIn(t, dir, "")
	d.wantSwept(dead, ids...)
}

// The daemon has no failpoints. The test kills it at several moments between an execution's
// header, which says that the execution is recorded, and its first output. It measures this
// time first, so that the moments fit on a slow machine.
func killedWhileStarting(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	const moments = 7
	d := startDaemonIn(t, dir, "")
	took := d.startTakes()
	for i := range moments {
		s, err := d.runs.Execute(t.Context(), code("hostile", "import time; time.sleep(600)"))
		if err != nil {
			t.Fatal(err)
		}
		header, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(took * time.Duration(i) / moments); time.Now().Before(end); {
		}
		dead := d.instance()
		d.kill()
		d = startDaemonIn(t, dir, "")
		d.wantSwept(dead, header.ExecutionId)
	}
}

// startTakes returns the time from an execution's header to its first output.
func (d *running) startTakes() time.Duration {
	d.t.Helper()
	s, err := d.runs.Execute(d.t.Context(), code("hostile", "print('begun', flush=True)"))
	if err != nil {
		d.t.Fatal(err)
	}
	begun := time.Now()
	var took time.Duration
	if _, err := collect(d.t, s, 0, func(e *pb.ExecutionEvent) {
		switch {
		case e.GetHeader() != nil:
			begun = time.Now()
		case e.GetOutput() != nil && took == 0:
			took = time.Since(begun)
		}
	}); err != nil || took == 0 {
		d.t.Fatalf("nothing was printed: %v", err)
	}
	return took
}

func frozenLeftovers(t *testing.T, _ *running, _ hostileCase) {
	lose := func(instance string) {
		if err := os.WriteFile(filepath.Join(instance, "cgroups.json"), make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, extra string
		damage      func(instance string)
	}{
		{"whole state", "", func(string) {}},
		{"where they are is lost", "", lose},
		{"made when asked for", "prepared: {zygote: false, sandboxes: 0, python_zygotes: 0}\n", lose},
	} {
		t.Run(tt.name, func(t *testing.T) { frozenLeftoversWith(t, tt.extra, tt.damage) })
	}
}

// freeze freezes the processes of a box and reports whether it could.
func (b *box) freeze(t *testing.T) (frozen bool) {
	t.Helper()
	for _, path := range b.paths {
		for file, word := range map[string]string{"freezer.state": "FROZEN", "cgroup.freeze": "1"} {
			if _, err := os.Stat(filepath.Join(path, file)); err != nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(path, file), []byte(word), 0); err != nil {
				t.Fatal(err)
			}
			frozen = true
		}
	}
	return frozen
}

func frozenLeftoversWith(t *testing.T, extra string, damage func(instance string)) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, extra)
	ids := d.hold(2, code("hostile", stubborn))
	var one, all []*box
	for _, b := range boxesOf(d.instance()) {
		if b.of(ids[0]) {
			one = append(one, b)
		}
		if b.name == zygoteBox {
			all = append(all, b)
		}
	}
	if len(one) != 1 {
		t.Fatalf("cgroups of %s: %v, want one", ids[0], one)
	}
	// On cgroup v1 the zygote and all of its sandboxes can only be frozen together. On v2
	// each sandbox can be frozen alone, but it dies with the zygote, so the zygote is frozen
	// as well.
	alone := one[0].freeze(t)
	frozen := alone
	for _, zygote := range all {
		frozen = zygote.freeze(t) || frozen
	}
	if !frozen {
		t.Fatal("nothing was frozen")
	}
	dead := d.instance()
	d.kill()
	if alone {
		d.untilNoProcess(ids[1])
	}
	if len(d.processes(ids[0])) == 0 {
		t.Fatal("the frozen one has died by itself; nothing is left to sweep")
	}
	damage(filepath.Join(dir, "state/sandbox/instances", dead))
	d = startDaemonIn(t, dir, "")
	d.wantSwept(dead, ids...)
}

// newDisk makes an ext4 file system in a file and mounts it at path.
func newDisk(t *testing.T, file, path string, megabytes int64) {
	t.Helper()
	disktest.FormatExt4(t, file, megabytes)
	mountDisk(t, file, path)
}

func mountDisk(t *testing.T, file, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	disktest.MountExt4(t, file, path)
}

// fillDisk fills the disk of a directory with one file. empty removes the file.
func fillDisk(t *testing.T, dir string) (empty func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 16 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	return func() {
		t.Helper()
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	}
}

func diskFull(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	newDisk(t, filepath.Join(dir, "disk"), filepath.Join(dir, "state"), 96)
	d := startDaemonIn(t, dir, "")
	d.works()
	before := d.held()
	empty := fillDisk(t, filepath.Join(dir, "state"))
	ended := 0
	for i := range 12 {
		req := shell("hostile", "head -c 300000 /dev/zero; head -c 200000 /dev/zero > artifact; exit 5")
		req.Files = []*pb.InputFile{{Path: "in", Source: &pb.InputFile_Content{Content: make([]byte, 1<<20)}}}
		if i%2 == 0 {
			req.Files = nil
		}
		r, err := d.try(req)
		switch {
		case err != nil:
			wantCode(t, "on a full disk", err, codes.ResourceExhausted, codes.Unavailable)
		case r.outcome.End == pb.ExecutionEnd_EXECUTION_END_EXITED && r.outcome.GetExitCode() == 5:
			ended++ // the outcome counts all bytes of stdout, kept or not
			if int(r.outcome.Stdout.TotalBytes) != 300000 {
				t.Errorf("stdout %v", r.outcome.Stdout)
			}
		case r.outcome.End != pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED:
			t.Errorf("ended as %v", r.outcome)
		}
	}
	t.Logf("%d of 12 ended truly on a full disk", ended)
	d.wantNothingLeft()
	empty()
	r := d.run(shell("hostile", "echo hi; echo kept > a"))
	r.wantStdout(t, "hi\n")
	if got := d.artifact(r.id, "a"); string(got) != "kept\n" {
		t.Errorf("artifact %q", got)
	}
	d.wantHeldAs(before)
	d.stop()
}

// The state is on a disk image. A copy of the image has the content that a power cut at that
// moment would leave: unwritten data of the file system is only in memory.
func powerCut(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	disk := filepath.Join(dir, "disk")
	newDisk(t, disk, filepath.Join(dir, "state"), 192)
	d := startDaemonIn(t, dir, "concurrency: {running: 4}\n")
	var mu sync.Mutex
	answered := map[string]string{} // key -> id of each execution whose header was received
	ended := map[string]bool{}
	request := func(n int) *pb.ExecuteRequest {
		req := shell("hostile", fmt.Sprintf("echo %d; echo %d > a", n, n))
		req.IdempotencyKey = fmt.Sprintf("key-%d", n)
		return req
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := make(chan struct{}, 1)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				n := int(next.Add(1))
				s, err := d.runs.Execute(ctx, request(n))
				if err != nil {
					return
				}
				for {
					e, err := s.Recv()
					if err != nil {
						break
					}
					mu.Lock()
					answered[fmt.Sprint(n)] = e.ExecutionId
					ended[e.ExecutionId] = ended[e.ExecutionId] || e.GetOutcome() != nil
					mu.Unlock()
					tell(events)
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(6, 6))
	type cut struct {
		file  string
		known map[string]string
	}
	var cuts []cut
	for i := range 4 {
		for range 1 + random.IntN(90) { // the random moment
			within(t, events, "nothing is answered")
		}
		mu.Lock()
		c := cut{file: filepath.Join(dir, fmt.Sprintf("cut-%d", i)), known: map[string]string{}}
		for n, id := range answered {
			c.known[n] = id
		}
		mu.Unlock()
		d.cmd.Process.Signal(syscall.SIGSTOP)
		out, err := exec.Command("cp", "--sparse=always", disk, c.file).CombinedOutput()
		d.cmd.Process.Signal(syscall.SIGCONT)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		cuts = append(cuts, c)
	}
	cancel()
	wg.Wait()
	d.stop()
	for _, c := range cuts {
		if len(c.known) == 0 {
			t.Error("nothing was answered before the cut")
		}
		after := newDir(t)
		writeHostileSkill(t, after)
		mountDisk(t, c.file, filepath.Join(after, "state"))
		d := startDaemonIn(t, after, "")
		keys, lost := 0, 0
		for n, id := range c.known {
			if keys++; keys > 25 {
				break
			}
			var number int
			fmt.Sscan(n, &number)
			r, err := d.try(request(number))
			if status.Code(err) == codes.DataLoss && strings.Contains(err.Error(), id) {
				lost++ // output reaches the disk later than the record; DATA_LOSS reports that it is lost
				continue
			}
			if err != nil {
				t.Errorf("key %s: %v", n, err)
				continue
			}
			if r.id != id {
				t.Errorf("key %s ran again as %s; it was claimed by %s", n, r.id, id)
			}
			if r.outcome.End == pb.ExecutionEnd_EXECUTION_END_EXITED && r.stdout.String() != n+"\n" && !r.outcome.Stdout.GetTruncated() {
				t.Errorf("%s is half there: %q, %v", id, r.stdout.String(), r.outcome)
			}
		}
		t.Logf("%d of %d keys were claimed by executions whose output is lost", lost, keys)
		list, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{PageSize: 1000})
		if err != nil {
			t.Error(err)
		}
		for _, e := range list.GetExecutions() {
			if e.State != pb.ExecutionState_EXECUTION_STATE_ENDED {
				t.Errorf("%s is %v", e.ExecutionId, e.State)
			}
		}
		d.works()
		d.stop()
	}
}

// corruptions are ways to damage a file.
var corruptions = map[string]func([]byte) []byte{
	"cut short": func(b []byte) []byte { return b[:len(b)/2] },
	"emptied":   func(b []byte) []byte { return nil },
	"zeroed":    func(b []byte) []byte { return make([]byte, len(b)) },
	"garbage":   func(b []byte) []byte { return bytes.Repeat([]byte("garbage "), len(b)/8+1)[:len(b)] },
	"one bit": func(b []byte) []byte {
		b = slices.Clone(b)
		if len(b) > 0 {
			b[len(b)/3] ^= 1
		}
		return b
	},
}

func corruptState(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	d := startDaemonIn(t, dir, "")
	first := shell("hostile", "echo first; echo kept > a")
	first.IdempotencyKey = "k"
	d.run(first)
	d.kill() // a stop would flush and close the files
	// One file of every kind.
	var files []string
	seen := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(dir, "state"), func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		parts := strings.Split(rel, "/")
		kind := strings.Join(parts[:min(len(parts), 3)], "/")
		if parts[1] == "snapshots" { // one file of one skill
			if !strings.HasSuffix(rel, "SKILL.md") {
				return nil
			}
			kind = "snapshot"
		}
		if info, err := e.Info(); err == nil && info.Size() > 0 && info.Size() < 16<<20 && !seen[kind] {
			seen[kind] = true
			files = append(files, rel)
		}
		return nil
	})
	if err != nil || len(files) < 4 {
		t.Fatalf("files %v, %v", files, err)
	}
	t.Logf("files: %v", files)
	damages := map[string][]damagedFile{} // by the entry of the state directory
	names := slices.Sorted(maps.Keys(corruptions))
	for i, rel := range files {
		for k, name := range names {
			if few := name == "emptied" || name == "garbage"; few && !strings.HasPrefix(rel, "state/record/record.db") && !strings.HasSuffix(rel, ".json") {
				continue // like cut short or zeroed
			}
			if slower > 1 && name != "cut short" && k != i%len(names) {
				continue // a start takes ten seconds in an emulator: one damage per file
			}
			owner := strings.Split(rel, "/")[1]
			damages[owner] = append(damages[owner], damagedFile{rel, name})
		}
	}
	places := make(chan struct{}, 2)
	var wg sync.WaitGroup
	for i := 0; ; i++ {
		var together []damagedFile
		for _, owner := range slices.Sorted(maps.Keys(damages)) {
			if list := damages[owner]; i < len(list) {
				together = append(together, list[i])
			}
		}
		if len(together) == 0 {
			break
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			t.Run(fmt.Sprintf("start %d", i), func(t *testing.T) { startDamaged(t, dir, together) })
		})
	}
	wg.Wait()
}

// A damagedFile is a file of the state directory and one of corruptions.
type damagedFile struct{ path, corruption string }

// startDamaged damages files in a copy of dir's state and starts a daemon on the copy. The files
// are of different packages, and none reads another one's. So each damage has its own effect.
func startDamaged(t *testing.T, dir string, damages []damagedFile) {
	t.Logf("damaged: %v", damages)
	copied := newDir(t)
	if out, err := exec.Command("cp", "-a", dir+"/state", dir+"/skills", copied).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	lostKey := false
	for _, one := range damages {
		path := filepath.Join(copied, one.path)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damaged := corruptions[one.corruption](data)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		lostKey = lostKey || strings.HasSuffix(path, "request.key") && len(damaged) != len(data)
	}
	d := launch(t, copied, "")
	d.dial("unix://" + copied + "/s.sock")
	d.waitServing()
	d.works()
	if _, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{}); err != nil {
		t.Errorf("list: %v", err)
	}
	if lostKey && !regexp.MustCompile(`file=\S+/request\.key kept_as=`).MatchString(d.log.String()) {
		t.Errorf("it does not say what became of the key: %s", d.log)
	}
	d.stop()
}

// limitedDaemon makes a memory cgroup for a daemon, and cgroups elsewhere for its sandboxes, because the limit must not
// include them. limit is the file that limits the group, relative to it. extra is configuration for the daemon.
func limitedDaemon(t *testing.T, name string) (group, limit, extra string) {
	t.Helper()
	memory, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if unified() {
		memory, limit = "/sys/fs/cgroup", "memory.max"
	} else if _, err := os.Stat(memory + "/" + limit); err != nil {
		t.Skip("no memory controller to limit the daemon by")
	}
	name = fmt.Sprintf("%s-%d", name, os.Getpid())
	group = filepath.Join(memory, name)
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
		boxes, _ := filepath.Glob("/sys/fs/cgroup/*/" + name + "-boxes")
		if unified() {
			boxes = []string{group + "-boxes"}
		}
		for _, b := range boxes {
			if err := os.Remove(b); err != nil {
				t.Error(err)
			}
		}
	})
	tops, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	if unified() {
		tops = []string{"/sys/fs/cgroup/cgroup.procs"}
	}
	for _, top := range tops {
		boxes := filepath.Join(filepath.Dir(top), name+"-boxes")
		if err := os.Mkdir(boxes, 0o755); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // cgroup v1 admits no process while these are empty, cpuset(7)
			if data, err := os.ReadFile(filepath.Join(filepath.Dir(top), file)); err == nil {
				os.WriteFile(filepath.Join(boxes, file), data, 0)
			}
		}
	}
	return group, limit, "cgroup_parent: /" + name + "-boxes\n"
}

// startInGroup starts a daemon in a cgroup of limitedDaemon.
func startInGroup(t *testing.T, dir, extra, group string) *running {
	t.Helper()
	d := launch(t, dir, extra, "/bin/sh", "-c", `echo $$ >"$0/cgroup.procs"; exec "$@"`, group)
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	return d
}

func daemonOutOfMemory(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	group, limit, extra := limitedDaemon(t, "hostile")
	if err := os.WriteFile(filepath.Join(group, limit), []byte("128M"), 0); err != nil {
		t.Fatal(err)
	}
	writeHostileSkill(t, dir)
	d := startInGroup(t, dir, extra, group)
	d.works()
	id := d.hold(1, code("hostile", stubborn))[0]
	// The kernel must kill a sandbox before it kills the daemon.
	for _, pid := range d.processes(id) {
		if data, err := os.ReadFile(fmt.Sprintf("/proc/%s/oom_score_adj", pid)); err != nil || strings.TrimSpace(string(data)) != "1000" {
			t.Errorf("oom_score_adj of process %s of a sandbox: %q, %v", pid, data, err)
		}
	}
	dead := d.instance()
	big := code("hostile", "#"+strings.Repeat("A", 4<<20))
	var wg sync.WaitGroup
	var answered atomic.Int64
	for range 100 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s, err := d.runs.Execute(ctx, big)
			for err == nil {
				_, err = s.Recv()
			}
			answered.Add(1)
		})
	}
	wg.Wait()
	if d.answers() { // the requests may have filled its queue for a while
		d.works()
		if _, err := d.runs.CancelExecution(t.Context(), &pb.CancelExecutionRequest{ExecutionId: id}); err != nil {
			t.Error(err)
		}
	} else { // the kernel killed it; the next daemon must sweep its leftovers
		if err := d.wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the daemon exited with %v", err)
		}
		t.Log("ADVISORY the daemon was killed at its limit of 128 MiB by 100 calls of 4 MiB at once")
		d = startInGroup(t, dir, extra, group)
		d.wantSwept(dead, id)
	}
	d.wantNoProcess()
	d.stop()
}

func descriptorsExhausted(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "concurrency: {running: 32}\n")
	d.works()
	before := d.held()
	var old unix.Rlimit
	if err := unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: uint64(before.files + before.database + 24), Max: old.Max}
	if err := unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var refused, failed atomic.Int64
	for range 60 {
		wg.Go(func() {
			r, err := d.try(shell("hostile", "sleep 0.3; echo done"))
			switch {
			case err != nil:
				refused.Add(1)
				wantCode(t, "without descriptors", err, codes.ResourceExhausted, codes.Unavailable, codes.Internal)
			case r.outcome.End == pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED:
				failed.Add(1)
			case r.outcome.End == pb.ExecutionEnd_EXECUTION_END_EXITED && r.stdout.String() != "done\n":
				t.Errorf("ended well with %q", r.stdout.String())
			}
		})
	}
	wg.Wait()
	if refused.Load()+failed.Load() == 0 {
		t.Error("all of them ran: nothing was exhausted")
	}
	t.Logf("%d refused, %d failed to start", refused.Load(), failed.Load())
	if err := unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &old, nil); err != nil {
		t.Fatal(err)
	}
	d.works()
	d.wantNothingLeft()
	d.wantHeldAs(before)
}

// pidsGroup returns the cgroup above the daemon's sandboxes that limits processes.
func (d *running) pidsGroup() string {
	d.t.Helper()
	for _, c := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		var found string
		filepath.WalkDir(c, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() && e.Name() == "skillrun-"+d.instance() {
				found = path
				return filepath.SkipAll
			}
			return nil
		})
		if _, err := os.Stat(filepath.Join(found, "pids.max")); found != "" && err == nil {
			return found
		}
	}
	d.t.Fatal("no cgroup of the daemon's sandboxes")
	return ""
}

// descriptors returns the open files of the daemon.
func (d *running) descriptors() []string {
	dir := fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{err.Error()}
	}
	var files []string
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if err == nil {
			files = append(files, e.Name()+" "+target)
		}
	}
	return files
}

func processesExhausted(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "concurrency: {running: 30}\n")
	// First as many executions as below, so that before includes everything that the daemon
	// keeps for so many.
	d.release(d.hold(30, shell("hostile", "echo ready; sleep 600")))
	d.works()
	before := d.held()
	group := d.pidsGroup()
	if err := os.WriteFile(group+"/pids.max", []byte("30"), 0); err != nil {
		t.Fatal(err)
	}
	// Started executions run until all have started or failed. None needs another process.
	req := wall(shell("hostile", "echo ready; exec sleep 600"), 10*time.Minute)
	var mu sync.Mutex
	var begun []string
	failed := 0
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			id, err := d.begins(req)
			mu.Lock()
			defer mu.Unlock()
			if id != "" {
				begun = append(begun, id)
				return
			}
			failed++
			if err != nil {
				wantCode(t, "without processes", err, codes.ResourceExhausted, codes.Unavailable)
			}
		})
	}
	wg.Wait()
	if failed == 0 {
		t.Error("all of them ran: nothing was exhausted")
	}
	t.Logf("%d ran, %d failed to start", len(begun), failed)
	if err := os.WriteFile(group+"/pids.max", []byte("max"), 0); err != nil {
		t.Fatal(err)
	}
	d.release(begun)
	d.works()
	d.wantNothingLeft()
	d.wantHeldAs(before)
}

func failClosed(t *testing.T, _ *running, _ hostileCase) {
	private := func(script string) []string {
		return []string{"/usr/bin/unshare", "--mount", "/bin/bash", "-ec", script + `; exec "$@"`, "bash"}
	}
	v1, v2 := unless(!unified(), "one hierarchy has all controllers on cgroup v2"), unless(unified(), "this machine has cgroup v1")
	for _, tt := range []struct {
		name string
		by   []string
		want string // part of its message
		skip string
	}{
		{"not root", []string{"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}, "root", ""},
		{"without CAP_SYS_ADMIN", []string{"/usr/sbin/capsh", "--drop=cap_sys_admin", "--", "-c", `exec "$@"`, "bash"}, "SYS_ADMIN", ""},
		{"without CAP_SETUID", []string{"/usr/sbin/capsh", "--drop=cap_setuid", "--", "-c", `exec "$@"`, "bash"}, "SETUID", ""},
		{"in a user namespace", []string{"/usr/bin/unshare", "--user", "--map-root-user"}, "ids", ""},
		{"cgroups read-only", private(`while read -r _ _ _ _ at _; do case $at in /sys/fs/cgroup*) mount -o remount,bind,ro "$at";; esac; done </proc/self/mountinfo`), "cgroup", ""},
		{"no cgroups", private(`umount -l -R /sys/fs/cgroup`), "cgroup", ""},
		{"pids controller missing", private(`umount -l /sys/fs/cgroup/pids`), "pids", v1},
		{"parts of /proc covered", private(`mount -t tmpfs none /proc/scsi || mount -t tmpfs none /proc/sys`), "proc", ""},
		{"state on overlayfs", private(`d=$(dirname "$3"); mkdir "$d"/{l,u,w,state}; mount -t overlay -o "lowerdir=$d/l,upperdir=$d/u,workdir=$d/w" none "$d/state"`), "id-mapped", ""},
		{"a kernel without seccomp", nil, "seccomp is missing", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.skip != "" {
				t.Skip(tt.skip)
			}
			if tt.by == nil {
				tt.by = withoutSeccomp(t)
			}
			refusesToStart(t, "", tt.by, tt.want)
		})
	}
	for _, tt := range badParents {
		t.Run("cgroup_parent "+tt.name, func(t *testing.T) {
			if v2 != "" {
				t.Skip(v2)
			}
			refusesToStart(t, "cgroup_parent: "+tt.make(t)+"\n", nil, tt.want)
		})
	}
	for _, what := range []string{"user.max_user_namespaces=0", "no overlay module", "core_pattern that pipes to a program", "core_pattern that names a socket"} {
		t.Run(what, func(t *testing.T) { t.Skip(changesTheMachine) })
	}
}

func unless(ok bool, why string) string {
	if ok {
		return ""
	}
	return why
}

func binaryReplaced(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	bin := filepath.Join(dir, "skillrund")
	install := func(to string) {
		t.Helper()
		if out, err := exec.Command("install", "-m", "0755", binary(t, "skillrund"), to).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	install(bin)
	d := launch(t, dir, "", "/bin/sh", "-c", `exe=$0; shift; exec "$exe" "$@"`, bin)
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	d.works()
	install(bin + ".new")
	if err := os.Rename(bin+".new", bin); err != nil {
		t.Fatal(err)
	}
	d.works()
	// Overwriting the file changes nothing either: the daemon runs from a sealed copy.
	if err := os.WriteFile(bin, []byte("#!/bin/sh\ntouch "+dir+"/ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.works()
	if err := os.Remove(bin); err != nil {
		t.Fatal(err)
	}
	d.works()
	if _, err := os.Stat(dir + "/ran"); err == nil {
		t.Error("the daemon ran what stands where its binary was")
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", d.cmd.Process.Pid))
	if err != nil || !strings.Contains(exe, "memfd:") {
		t.Errorf("it runs from %q, %v; want a copy in memory", exe, err)
	}
	if f, err := os.OpenFile(fmt.Sprintf("/proc/%d/exe", d.cmd.Process.Pid), os.O_WRONLY, 0); err == nil {
		_, err = f.WriteAt([]byte{0}, 0)
		f.Close()
		if err == nil {
			t.Error("even root can write to the running copy")
		}
	}
}

func daemonStopped(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "grace: 100ms\n")
	id := d.hold(1, wall(code("hostile", stubborn), startsWithin))[0]
	d.cmd.Process.Signal(syscall.SIGSTOP)
	d.untilNoProcess(id) // init enforces the deadline, too
	d.cmd.Process.Signal(syscall.SIGCONT)
	r := d.attach(id, 0)
	if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_TIMED_OUT || r.outcome.Evidence.GetDeadline() != pb.ExecutionDeadline_EXECUTION_DEADLINE_WALL {
		t.Errorf("ended as %v, want TIMED_OUT by the wall deadline", r.outcome)
	}
	r.wantStdout(t, "ready\n")
	d.works()
	d.wantNothingLeft()
}

func drainOfMany(t *testing.T, _ *running, _ hostileCase) {
	d := startHostile(t, "concurrency: {running: 20}\n")
	var wg sync.WaitGroup
	ready := make(chan struct{}, 20)
	for range 20 {
		wg.Go(func() {
			said := false
			defer func() {
				if !said { // it failed; the test must not wait for it
					ready <- struct{}{}
				}
			}()
			s, err := d.runs.Execute(t.Context(), shell("hostile", "echo ready; sleep 1; echo ok"))
			if err != nil {
				t.Error(err)
				return
			}
			r, err := collect(t, s, 0, func(e *pb.ExecutionEvent) {
				if e.GetOutput() != nil && !said {
					said = true
					ready <- struct{}{}
				}
			})
			if err != nil {
				t.Error(err)
				return
			}
			r.wantExit(t, 0)
			r.wantStdout(t, "ready\nok\n")
		})
	}
	for range 20 {
		<-ready
	}
	d.cmd.Process.Signal(syscall.SIGTERM)
	d.untilLogged("draining")
	if _, err := d.try(code("hostile", "print('new')")); status.Code(err) != codes.Unavailable {
		t.Errorf("a new one: %v, want Unavailable", err)
	}
	wg.Wait()
	if err := d.wait(); err != nil {
		t.Errorf("the daemon exited with %v, want 0", err)
	}
	d.wantNoFiles()
}

func initFailures(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeSkill(t, dir, "hostile", "allowed-tools: Bash", map[string]string{
		"data/lock": "x", "scripts/x.ps1": "x", "bin/none": "#!/no/such/interpreter\n", "bin/elf": "\x7fELF garbage", "bin/text": "text",
	})
	for _, name := range []string{"none", "elf", "text"} {
		if err := os.Chmod(filepath.Join(dir, "skills/hostile/bin", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeSkill(t, dir, "victim", "", map[string]string{"scripts/ok.sh": "echo ok"})
	d := startDaemonIn(t, dir, "")
	d.works()
	before := d.held()
	_, err := d.try(script("hostile", "scripts/x.ps1"))
	wantCode(t, "no interpreter", err, codes.FailedPrecondition, codes.InvalidArgument)
	for _, line := range []string{"bin/none", "bin/elf", "bin/text", "data/lock", "no-such-program", "./data"} {
		r, err := d.try(command("hostile", line))
		if err != nil {
			wantCode(t, line, err, codes.FailedPrecondition, codes.InvalidArgument)
			continue
		}
		if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED || r.outcome.ExitCode != nil || r.outcome.Evidence.GetSetupStep() == "" || r.outcome.Advice == "" {
			t.Errorf("%s: ended as %v, want SETUP_FAILED with its step", line, r.outcome)
		}
	}
	// The source of a mount disappears between the check and the start.
	s, err := d.skills.GetSkill(t.Context(), &pb.GetSkillRequest{Skill: "victim"})
	if err != nil {
		t.Fatal(err)
	}
	removed := 0
	filepath.WalkDir(filepath.Join(dir, "state/snapshots"), func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.Contains(e.Name(), strings.TrimPrefix(s.Digest, "sha256:")) {
			removed++
			if err := os.RemoveAll(path); err != nil {
				t.Error(err)
			}
			return filepath.SkipDir
		}
		return nil
	})
	if removed == 0 {
		t.Fatal("no snapshot of the skill was found")
	}
	r, err := d.try(script("victim", "scripts/ok.sh"))
	if err != nil {
		wantCode(t, "a snapshot that is gone", err, codes.Internal, codes.FailedPrecondition, codes.NotFound, codes.DataLoss, codes.Unavailable)
	} else if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_SETUP_FAILED {
		t.Errorf("a snapshot that is gone: ended as %v %q", r.outcome, r.stdout.String())
	}
	small := code("hostile", "print(1)")
	small.Limits = &pb.ExecutionLimits{MemoryBytes: 8 << 20, Processes: 1, OpenFiles: 32, WorkspaceBytes: 1, WorkspaceFiles: 1}
	if r, err := d.try(small); err != nil {
		wantCode(t, "limits at their floor", err, codes.InvalidArgument)
	} else if r.outcome.End == pb.ExecutionEnd_EXECUTION_END_UNSPECIFIED {
		t.Errorf("limits at their floor: ended as %v", r.outcome)
	}
	d.works()
	d.wantNothingLeft()
	d.wantHeldAs(before)
}

// All writes to the disk block. The daemon must kill an execution at its deadline without
// waiting for the disk.
func frozenDisk(t *testing.T, _ *running, _ hostileCase) {
	dir := newDir(t)
	writeHostileSkill(t, dir)
	state := filepath.Join(dir, "state")
	newDisk(t, filepath.Join(dir, "disk"), state, 128)
	d := startDaemonIn(t, dir, "grace: 100ms\n")
	d.works()
	id := d.hold(1, wall(code("hostile", stubborn), startsWithin))[0]
	freeze := func(flag string) {
		t.Helper()
		if out, err := exec.Command("/usr/sbin/fsfreeze", flag, state).CombinedOutput(); err != nil {
			t.Errorf("fsfreeze %s: %v %s", flag, err, out)
		}
	}
	freeze("--freeze")
	thaw := sync.OnceFunc(func() { freeze("--unfreeze") })
	t.Cleanup(thaw)
	var wg sync.WaitGroup
	for range 10 { // these wait for the disk
		wg.Go(func() {
			if r, err := d.try(shell("hostile", "echo hi")); err != nil {
				wantCode(t, "meanwhile", err, codes.Unavailable, codes.ResourceExhausted)
			} else {
				r.wantStdout(t, "hi\n")
			}
		})
	}
	d.untilNoProcess(id)
	thaw()
	wg.Wait()
	r := d.attach(id, 0)
	if r.outcome.End != pb.ExecutionEnd_EXECUTION_END_TIMED_OUT {
		t.Errorf("ended as %v, want TIMED_OUT", r.outcome)
	}
	d.works()
	d.wantNothingLeft()
	d.stop()
}
