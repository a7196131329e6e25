package executor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	skillrun "github.com/skillrun/skillrun/clients/go"
	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/record"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/server"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
	"github.com/skillrun/skillrun/internal/toolview"
	"github.com/skillrun/skillrun/internal/workspace"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
	"github.com/skillrun/skillrun/sandbox"
)

// The benchmarks here measure a request without its sandbox. The daemon is real: its own
// process, its record on disk, a Unix socket, a real client. Only the programs are Go
// functions, so the results are the cost of everything except the sandbox.
//
// CPU time is measured for the daemon and the client separately.

// benchDir, in the environment, makes the test binary the daemon of a benchmark; its
// state is there.
const benchDir = "EXECUTOR_BENCH_DIR"

// benchProfile, in the environment, is where that daemon writes a CPU profile.
const benchProfile = "EXECUTOR_BENCH_PROFILE"

// A whole request of a program that does nothing, and of one that prints a line.
func BenchmarkRequest(b *testing.B) {
	for _, program := range []string{"true", "say 12"} {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(program, " ", ""), clients), func(b *testing.B) {
				benchRequests(b, startBench(b), program, clients)
			})
		}
	}
}

// The same with an idempotency key, which waits for the disk.
func BenchmarkRequestWithKey(b *testing.B) {
	d := startBench(b)
	d.key = true
	benchRequests(b, d, "true", 1)
}

func benchRequests(b *testing.B, d *benchDaemon, program string, clients int) {
	for range 50 {
		d.run(b, program)
	}
	took := make(chan []time.Duration, clients)
	turns := make(chan struct{})
	before := d.used(b)
	for range clients {
		go func() {
			var mine []time.Duration
			for range turns {
				began := time.Now()
				d.run(b, program)
				mine = append(mine, time.Since(began))
			}
			took <- mine
		}()
	}
	for b.Loop() {
		turns <- struct{}{}
	}
	close(turns)
	var all []time.Duration
	for range clients {
		all = append(all, <-took...)
	}
	d.reportUsed(b, before, len(all))
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(all[len(all)*95/100].Microseconds()), "p95-us")
}

// reportUsed reports what n requests have used since before.
func (d *benchDaemon) reportUsed(b *testing.B, before used, n int) {
	b.Helper()
	after := d.used(b)
	per := func(before, after int64) float64 { return float64(after-before) / float64(n) }
	b.ReportMetric(per(before.daemon, after.daemon)/1e3, "daemon-cpu-us/op")
	b.ReportMetric(per(before.client, after.client)/1e3, "client-cpu-us/op")
	b.ReportMetric(per(before.writes, after.writes), "daemon-writes/op")
	b.ReportMetric(per(before.waits, after.waits), "daemon-waits/op")
	b.ReportMetric(per(before.faults, after.faults), "daemon-faults/op")
}

// One program's output of 1 GiB to a client, and how much the daemon's memory grows.
func BenchmarkStream(b *testing.B) {
	const size = 1 << 30
	d := startBench(b)
	d.run(b, "stream 67108864")
	b.SetBytes(size)
	resting := d.memory(b, "VmRSS")
	d.forgetPeak(b)
	before := d.used(b)
	for b.Loop() {
		cmd := d.client.Code("demo", "bash", fmt.Sprintf("stream %d", size))
		cmd.Limits.OutputBytes = size
		var got counter
		cmd.Stdout = &got
		if err := cmd.Run(b.Context()); err != nil || got != size {
			b.Fatalf("%d bytes, %v", got, err)
		}
	}
	after := d.used(b)
	b.ReportMetric(float64(d.memory(b, "VmHWM")-resting)/(1<<20), "growth-MiB")
	b.ReportMetric(float64(after.daemon-before.daemon)/1e6/float64(b.N), "daemon-cpu-ms/op")
	b.ReportMetric(float64(after.client-before.client)/1e6/float64(b.N), "client-cpu-ms/op")
}

// The time from the program's print of a byte until the client has that byte.
func BenchmarkFirstByte(b *testing.B) {
	d := startBench(b)
	var took []time.Duration
	for b.Loop() {
		cmd := d.client.Code("demo", "bash", "stamp")
		cmd.Stdout = writerFunc(func(p []byte) {
			at, err := strconv.ParseInt(strings.TrimSpace(string(p)), 10, 64)
			if err != nil {
				b.Error(err)
			}
			took = append(took, time.Since(time.Unix(0, at)))
		})
		if err := cmd.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-us")
}

// A thousand executions that sleep, and then the end of all of them.
func BenchmarkSleepers(b *testing.B) {
	const many = 1000
	d := startBench(b)
	for range 50 {
		d.run(b, "true")
	}
	for range many / 50 { // of a connection there are not more streams than 100
		d.others = append(d.others, d.dial(b))
	}
	for b.Loop() {
		resting := d.memory(b, "VmRSS")
		var running, over sync.WaitGroup
		ids := make([]string, many)
		for i := range ids {
			running.Add(1)
			cmd := d.others[i%len(d.others)].Code("demo", "bash", "sleep")
			cmd.OnEvent = func(e *pb.ExecutionEvent) {
				if e.GetStarted() != nil {
					running.Done()
				}
			}
			if err := cmd.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			ids[i] = cmd.Execution.ID
			over.Go(func() { cmd.Wait() })
		}
		running.Wait()
		b.ReportMetric(float64(d.memory(b, "VmRSS"))/(1<<20), "daemon-MiB")
		b.ReportMetric(float64(d.memory(b, "VmRSS")-resting)/1024/many, "KiB/sleeper")
		began := time.Now()
		for i, id := range ids {
			over.Go(func() {
				if _, err := d.others[i%len(d.others)].Executions().CancelExecution(b.Context(), &pb.CancelExecutionRequest{ExecutionId: id}); err != nil {
					b.Error(err)
				}
			})
		}
		over.Wait()
		b.ReportMetric(time.Since(began).Seconds(), "cancel-s")
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// A benchDaemon is a daemon in another process and a client of it.
type benchDaemon struct {
	cmd    *exec.Cmd
	socket string
	client *skillrun.Client
	others []*skillrun.Client
	key    bool
}

func startBench(b *testing.B) *benchDaemon {
	b.Helper()
	dir := b.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), benchDir+"="+dir)
	cmd.Stderr = os.Stderr
	ready, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		b.Fatalf("the daemon did not start: %v", err)
	}
	d := &benchDaemon{cmd: cmd, socket: filepath.Join(dir, "s")}
	d.client = d.dial(b)
	return d
}

// dial returns another connection.
func (d *benchDaemon) dial(b *testing.B) *skillrun.Client {
	b.Helper()
	client, err := skillrun.Dial(d.socket)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	return client
}

// run runs a program to its end.
func (d *benchDaemon) run(b *testing.B, program string) {
	cmd := d.client.Code("demo", "bash", program)
	if d.key {
		cmd.IdempotencyKey = record.NewID()
	}
	if err := cmd.Run(b.Context()); err != nil {
		b.Error(err)
	}
}

// used counts the work of both sides: nanoseconds of CPU time each; for the daemon also
// its writes, the waits of its threads, and its page faults.
type used struct{ daemon, client, writes, waits, faults int64 }

func (d *benchDaemon) used(b *testing.B) used {
	b.Helper()
	var u used
	var err error
	if u.daemon, err = cpuOf(d.cmd.Process.Pid); err != nil {
		b.Fatal(err)
	}
	if u.client, err = cpuOf(os.Getpid()); err != nil {
		b.Fatal(err)
	}
	u.writes = d.number(b, "io", "syscw")
	u.waits, u.faults = d.threads(b)
	return u
}

// threads sums up the counters of the daemon's threads from status and stat, proc(5). A
// thread that ends takes its counters with it; the Go runtime ends no thread by default.
func (d *benchDaemon) threads(b *testing.B) (waits, faults int64) {
	b.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", d.cmd.Process.Pid))
	if err != nil || len(tasks) == 0 {
		b.Fatalf("threads of the daemon: %v", err)
	}
	for _, task := range tasks {
		waits += d.number(b, "task/"+filepath.Base(task)+"/status", "\nvoluntary_ctxt_switches")
		stat, err := os.ReadFile(task + "/stat")
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ") // a name may have blanks
		var minor int64
		if _, err := fmt.Sscan(strings.Fields(rest)[7], &minor); err != nil {
			b.Fatal(err)
		}
		faults += minor
	}
	return waits, faults
}

// cpuOf is the CPU time of a process: clock_getcpuclockid(3) makes the clock of it
// from the complement of its pid.
func cpuOf(pid int) (int64, error) {
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &at); err != nil {
		return 0, fmt.Errorf("CPU time of %d: %w", pid, err)
	}
	return at.Nano(), nil
}

// memory reads a line of the daemon's status, in bytes.
func (d *benchDaemon) memory(b *testing.B, name string) int64 {
	b.Helper()
	return d.number(b, "status", name) << 10
}

// forgetPeak makes VmHWM count anew: proc(5), clear_refs.
func (d *benchDaemon) forgetPeak(b *testing.B) {
	b.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.cmd.Process.Pid), []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
}

func (d *benchDaemon) number(b *testing.B, file, name string) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", d.cmd.Process.Pid, file))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), name+":")
	var n int64
	if _, err := fmt.Sscan(rest, &n); err != nil {
		b.Fatalf("%s: %s: %v", file, name, err)
	}
	return n
}

// serveBench is the daemon: all of one but its sandboxes. It says on stdout that it
// serves, and ends by SIGTERM.
func serveBench(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, x, err := newBenchServer(ctx, dir)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if name := os.Getenv(benchProfile); name != "" {
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Println("serving")
	<-ctx.Done()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	x.Drain(over, over)
	s.Stop(over)
	return <-served
}

func newBenchServer(ctx context.Context, dir string) (*server.Server, *executor.Executor, error) {
	folder := filepath.Join(dir, "skills/demo")
	manifest := "---\nname: demo\ndescription: A skill.\nversion: 1.2.3\n---\n"
	err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "SKILL.md"), []byte(manifest), 0o644))
	if err != nil {
		return nil, nil, err
	}
	lines, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, nil, err
	}
	log := slog.New(slog.NewTextHandler(lines, nil))
	store, err := record.Open(record.Config{Dir: filepath.Join(dir, "record"), Log: log})
	if err != nil {
		return nil, nil, err
	}
	skills, err := skill.OpenRegistry(ctx, skill.RegistryConfig{Roots: skill.Roots(filepath.Dir(folder)), Dir: filepath.Join(dir, "snapshots"), Owner: skilltest.Owner(), Log: log})
	if err != nil {
		return nil, nil, err
	}
	runtimes, err := runtime.Discover(ctx, runtime.Config{Rootfs: "/"})
	if err != nil {
		return nil, nil, err
	}
	bounds := executor.StandardBounds()
	bounds.Max.OutputBytes = 1 << 40
	x, err := executor.New(ctx, executor.Config{
		Skills: skills, Runtimes: runtimes, Record: store, Bounds: bounds,
		StagingDir: filepath.Join(dir, "staging"), Owner: workspace.Owner(skilltest.Owner()), KeyFile: filepath.Join(dir, "key"),
		MaxRunning: 2000, MaxQueued: 2000, QueueTimeout: time.Minute, Grace: time.Second, CancelGrace: time.Second,
		Keep: workspace.CollectLimits{}, Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	changes := filepath.Join(dir, "changes")
	if err := os.Mkdir(changes, 0o755); err != nil {
		return nil, nil, err
	}
	x.SetStart(func(_ context.Context, spec sandbox.Spec, io sandbox.IO) (executor.Process, error) {
		return startStandIn(spec, io, changes)
	})
	s, err := server.New(server.Config{
		Executor: x, Skills: skills, StagingDir: filepath.Join(dir, "uploads"), Log: log,
		Tools:        toolview.New(toolview.Config{Executor: x, Skills: skills, Log: log}),
		Capabilities: func() server.Capabilities { return server.Capabilities{} },
	})
	return s, x, err
}

// A standIn is a program that is a function of this process.
type standIn struct {
	stop chan struct{}
	once sync.Once
	done chan sandbox.Exit
}

func (p *standIn) Signal(syscall.Signal) error { return nil }
func (p *standIn) Stop(time.Duration)          { p.once.Do(func() { close(p.stop) }) }
func (p *standIn) Wait() (sandbox.Exit, error) { return <-p.done, nil }

// startStandIn runs an inline program by its text: true, sleep, stamp, say N, stream N.
func startStandIn(spec sandbox.Spec, to sandbox.IO, changes string) (executor.Process, error) {
	p := &standIn{stop: make(chan struct{}), done: make(chan sandbox.Exit, 1)}
	args := spec.Program[0].Pipeline[0].Args
	word, rest, _ := strings.Cut(args[len(args)-2], " ") // bash -c -- text bash
	n, _ := strconv.Atoi(rest)
	go func() {
		exit := sandbox.Exit{End: sandbox.Exited}
		switch word {
		case "sleep":
			<-p.stop
			exit = sandbox.Exit{End: sandbox.Stopped, Signal: syscall.SIGTERM}
		case "stamp":
			fmt.Fprintln(to.Stdout, time.Now().UnixNano())
		case "say":
			to.Stdout.Write(bytes.Repeat([]byte{'x'}, n))
		case "stream":
			print(to.Stdout, n)
		}
		root, err := os.OpenRoot(changes)
		if err == nil {
			exit.CollectErr = to.Collect(root)
			root.Close()
		}
		p.done <- exit
	}()
	return p, nil
}

// print writes n bytes in the pieces in which a pipe gives them.
func print(w io.Writer, n int) {
	piece := bytes.Repeat([]byte("0123456789abcde\n"), 2048)
	for n > 0 {
		k := min(n, len(piece))
		w.Write(piece[:k])
		n -= k
	}
}
