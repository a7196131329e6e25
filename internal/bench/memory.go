package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// idleMemory measures the memory of an idle daemon that has executed programs before.
// Programs run first, so that pools and caches have reached their usual size.
func idleMemory(r *run, rows rowSet) error {
	d, err := r.startNew("idle", "")
	if err != nil {
		return err
	}
	err = r.each(50, 1, func(ctx context.Context, _ int) error { return trueProgram.request(ctx, d.client) })
	if err == nil {
		err = r.pause(r.scale.toIdle)
	}
	var held int64
	if err == nil {
		held, err = heldBytes(d.pid())
	}
	if err := errors.Join(err, d.stop()); err != nil {
		return err
	}
	rows["memory-idle"].set(float64(held)/(1<<20), 1)
	return nil
}

const (
	// sleepersPerConnection is below the daemon's limit for one connection.
	sleepersPerConnection = 50
	// startWidth is how many sleepers are started at the same time.
	startWidth = 16
)

// sleeping runs many executions that sleep at the same time, and then cancels them. The daemon
// runs them all at once: its limit is a few above n.
func sleeping(r *run, rows rowSet) error {
	n := r.scale.sleeping
	d, err := r.startNew("sleeping", fmt.Sprintf("concurrency: {running: %d}\n", n+10))
	if err != nil {
		return err
	}
	return errors.Join(sleepBeneath(r, d, n, rows), d.stop())
}

// sleepBeneath starts n sleepers over several connections, measures the daemon's memory while all
// of them run, and cancels them. The rows with memory divide by n, also if fewer run; then the
// row sleeping misses its target.
func sleepBeneath(r *run, d *daemon, n int, rows rowSet) error {
	err := r.each(50, 1, func(ctx context.Context, _ int) error { return trueProgram.request(ctx, d.client) })
	if err != nil {
		return err
	}
	clients, end, err := d.dial((n + sleepersPerConnection - 1) / sleepersPerConnection)
	if err != nil {
		return err
	}
	defer end()
	if err := r.pause(r.scale.toIdle); err != nil {
		return err
	}
	before, err := heldBytes(d.pid())
	if err != nil {
		return err
	}
	all := make([]*sleeper, n)
	began := time.Now()
	err = r.each(n, startWidth, func(_ context.Context, i int) (err error) {
		all[i], err = startSleeper(r.ctx, clients[i%len(clients)])
		return err
	})
	if err != nil {
		return err
	}
	started := time.Since(began)
	if err := r.pause(r.scale.toIdle); err != nil {
		return err
	}
	after, err := heldBytes(d.pid())
	if err != nil {
		return err
	}
	running := 0
	for _, s := range all {
		if s.running.Load() {
			running++
		}
	}
	began = time.Now()
	if err := cancelAll(r, all); err != nil {
		return err
	}
	cancelled := time.Since(began)
	rows["sleeping"].set(float64(running), n)
	rows["memory-running"].set(float64(after-before)/1024/float64(n), n)
	rows["sleeping-memory"].set(float64(after)/(1<<20), 1)
	rows["sleeping-cancel"].set(float64(cancelled)/1e6, n)
	rows["sleeping-start"].set(float64(started)/1e6, n)
	return nil
}

// A sleeper is an execution that sleeps. running turns false if the execution ends.
type sleeper struct {
	cmd     *skillrun.Cmd
	running atomic.Bool // the program runs
}

// startSleeper starts a sleeper and returns when its program runs. OnEvent may run in another
// goroutine, so running is atomic.
func startSleeper(ctx context.Context, c *skillrun.Client) (*sleeper, error) {
	s := &sleeper{cmd: c.Command(benchSkill, "sleep 600")}
	runs := make(chan struct{})
	var once sync.Once
	s.cmd.Limits.WallTime = 10 * time.Minute
	s.cmd.OnEvent = func(e *pb.ExecutionEvent) {
		switch {
		case e.GetStarted() != nil:
			s.running.Store(true)
			once.Do(func() { close(runs) })
		case e.GetOutcome() != nil:
			s.running.Store(false)
			once.Do(func() { close(runs) })
		}
	}
	if err := s.cmd.Start(ctx); err != nil {
		return nil, err
	}
	select {
	case <-runs:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if !s.running.Load() {
		return nil, fmt.Errorf("a sleeper ended: %w", s.cmd.Wait())
	}
	return s, nil
}

// cancelAll cancels all sleepers at the same time, as their callers would, and waits for every
// outcome. It starts one goroutine for each, because callers do not wait for each other.
func cancelAll(r *run, all []*sleeper) error {
	return r.each(len(all), len(all), func(ctx context.Context, i int) error {
		if err := all[i].cmd.Cancel(ctx); err != nil {
			return fault("cancel", err)
		}
		err := all[i].cmd.Wait()
		exit := (*skillrun.ExitError)(nil)
		if !errors.As(err, &exit) || exit.Outcome.GetEnd() != pb.ExecutionEnd_EXECUTION_END_CANCELLED {
			return fmt.Errorf("a cancelled execution ended with %w", err)
		}
		return nil
	})
}

// heldBytes is the memory that a daemon takes from the machine: its anonymous pages, and
// its whole program once. The program counts completely because the daemon runs from a
// sealed copy of it in memory.
func heldBytes(pid int) (int64, error) {
	anonymous, err := statusField(pid, "RssAnon")
	if err != nil {
		return 0, err
	}
	var program syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d/exe", pid), &program); err != nil {
		return 0, err
	}
	// st_blocks counts units of 512 bytes, whatever the file system's block size is
	// (inode(7)).
	return anonymous + program.Blocks*512, nil
}

// residentBytes returns the process's resident memory. It includes file pages that the kernel
// could drop; growth is measured with it, not a size.
func residentBytes(pid int) (int64, error) { return statusField(pid, "VmRSS") }

// peakBytes returns the highest resident memory since forgetPeak.
func peakBytes(pid int) (int64, error) { return statusField(pid, "VmHWM") }

// forgetPeak resets the peak to the current resident memory, see clear_refs in proc(5).
func forgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// statusField reads a size from /proc/<pid>/status.
func statusField(pid int, name string) (int64, error) {
	return kibField(fmt.Sprintf("/proc/%d/status", pid), name)
}

// proportionalBytes returns the process's memory, in which a page that n processes share
// counts as 1/n of a page (PSS, see proc(5)).
func proportionalBytes(pid int) (int64, error) {
	return kibField(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss")
}

// kibField reads a size in bytes. These files give sizes in KiB and call the unit kB
// (proc_pid_status(5), proc_meminfo(5)).
func kibField(path, name string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s: it has no %s", path, name)
}
