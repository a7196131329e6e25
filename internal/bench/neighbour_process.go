package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/metadata"
)

// A neighbour's clients run in a separate process and session, with the lowest priority. Real clients run on other
// machines. Here they share the processors with the daemon. With the lowest priority they take only the time that the
// daemon, its sandboxes and the measured client leave.

// lowest is the nice value of the lowest priority, see sched(7).
const lowest = 19

// A neighbourTask is the standard input of the process. The neighbour acts until the input ends.
type neighbourTask struct {
	Row   string // the neighbour's
	Dir   string // of the daemon
	Token string // of the neighbour's tenant
	Last  string // a token of the last tenant that churn adds
}

// acting is the first value on the standard output of the process: a client has begun its first act.
const acting = "acting"

// A neighbourEnd is the second value.
type neighbourEnd struct {
	Acts  int    // acts that the clients have begun
	Error string // the first unexpected error of a client
}

// moveIn starts a neighbour's process and waits until it acts. end stops it and returns the number of its acts.
func (r *run) moveIn(task neighbourTask) (end func() (acts int, err error), err error) {
	cmd := exec.Command(r.Self, "bench", "neighbour")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	// With a session comes a group of the scheduler (autogroups in sched(7)).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := startLast(cmd); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(r.ctx, func() { in.Close() })
	answers := json.NewDecoder(out)
	end = func() (int, error) {
		stop()
		in.Close()
		kill := time.AfterFunc(stopPatience, func() { cmd.Process.Kill() })
		defer kill.Stop()
		var e neighbourEnd
		err := answers.Decode(&e)
		if waitErr := cmd.Wait(); waitErr != nil {
			return 0, fmt.Errorf("%w: %s", waitErr, bytes.TrimSpace(complaints.Bytes()))
		}
		if err == nil && e.Error != "" {
			err = errors.New(e.Error)
		}
		return e.Acts, err
	}
	err = json.NewEncoder(in).Encode(task)
	if err == nil {
		// With the lowest priority the start takes long on a busy machine.
		err = answers.Decode(new(string))
	}
	if err != nil {
		_, endErr := end()
		return nil, cmp.Or(endErr, err)
	}
	return end, nil
}

// startLast starts a process with the lowest priority.
func startLast(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		// A process begins with the priority of the thread that starts it. The goroutine stays locked to the
		// thread, so the thread ends with it.
		runtime.LockOSThread()
		err := unix.Setpriority(unix.PRIO_PROCESS, 0, lowest)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	return <-started
}

// sessionLast gives the process's session the lowest priority. The kernel compares the priorities of the threads of a
// session with each other, and the sessions by this number. A kernel without autogroups has no such file.
// Without root, one write in 100 ms succeeds on the whole machine (proc_sched_autogroup_set_nice in
// kernel/sched/autogroup.c).
func sessionLast(ctx context.Context) error {
	for {
		err := os.WriteFile("/proc/self/autogroup", fmt.Append(nil, lowest), 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Neighbour is the process of a neighbour's clients. It reads its task, acts until in ends, and writes its report to out.
func Neighbour(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := sessionLast(ctx); err != nil {
		return err
	}
	tasks := json.NewDecoder(in)
	var task neighbourTask
	if err := tasks.Decode(&task); err != nil {
		return fault("task", err)
	}
	all := theNeighbours(task.Last)
	at := slices.IndexFunc(all, func(n neighbour) bool { return n.row == task.Row })
	if at < 0 {
		return fmt.Errorf("task: no neighbour has the row %q", task.Row)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		io.Copy(io.Discard, in)
		cancel(nil)
	}()
	answers := json.NewEncoder(out)
	begin := sync.OnceFunc(func() { answers.Encode(acting) }) // if the reader has gone, in ends
	acts, err := all[at].live(ctx, cancel, &daemon{dir: task.Dir}, task.Token, begin)
	end := neighbourEnd{Acts: acts}
	if err != nil {
		end.Error = err.Error()
	}
	return answers.Encode(end)
}

// live has the clients act until ctx ends, and cancels it at the first unexpected error. Each client calls begin with each
// act.
func (n neighbour) live(ctx context.Context, cancel context.CancelCauseFunc, d *daemon, token string, begin func()) (int, error) {
	clients, closeAll, err := d.dial(n.clients)
	if err != nil {
		return 0, err
	}
	defer closeAll()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	var acts atomic.Int64
	var loops sync.WaitGroup
	for i, c := range clients {
		loops.Go(func() {
			for at := i; ctx.Err() == nil; at++ {
				acts.Add(1)
				begin()
				// After the end every error is expected: the calls were cancelled.
				if err := n.act(ctx, d, c, at); !expected(err) && ctx.Err() == nil {
					cancel(err)
				}
			}
		})
	}
	loops.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return int(acts.Load()), err
	}
	return int(acts.Load()), nil
}
