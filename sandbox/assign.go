package sandbox

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/failpoint"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// expectFirst waits for the first process that init forks. Init reports its pid inside the
// sandbox.
func (c *sandbox) expectFirst() error {
	ready, err := c.control.Expect(pid1.FrameReady, 1)
	if err == nil {
		c.first = ready[0]
	}
	return step("init", err)
}

// verify sets the limits and compares the posture of the first process, which waits, with
// the Spec. build calls it after the maker. The mounts and the program of an execution come
// later, with assign.
func (c *sandbox) verify() error {
	err := c.hold()
	if err != nil {
		return &SetupError{Step: "posture", Err: err}
	}
	if _, err := c.limit(c.spec.Limits); err != nil { // a cloner has set them before
		return err
	}
	want := c.posture()
	err = c.host.enforce(func() (err error) {
		c.first, err = want.check(c.first)
		return err
	})
	if err != nil {
		return &SetupError{Step: "posture", Err: err}
	}
	// Register before the program runs: the kernel of cgroup v1 does not repeat a notification.
	if c.oom, err = c.group.NotifyOOM(); err != nil {
		return &SetupError{Step: "cgroup", Err: err}
	}
	c.before = c.group.CPUUsage()
	return nil
}

// hold opens the namespaces of the sandbox that the daemon needs.
func (c *sandbox) hold() (err error) {
	// Mounts map the owners of files by the sandbox's user namespace.
	if c.userns, err = openNamespace(c.init.pid, "user"); err != nil {
		return err
	}
	// The last holder of a namespace pays for its destruction, some milliseconds of work
	// and of waiting. The daemon holds these so that init does not: the answer waits for
	// init's end.
	for _, name := range []string{"mnt", "net", "ipc"} {
		f, err := openNamespace(c.init.pid, name)
		if err != nil {
			return err
		}
		c.held = append(c.held, f)
		if name == "net" {
			c.netns = f
		}
	}
	return nil
}

func openNamespace(pid int, name string) (*os.File, error) {
	return pseudofs.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, name), unix.O_RDONLY)
}

// limit sets the limits that can change at any time. It reports whether it changed one.
// Open files, CPU time and the size of the workspace can't change: they belong to the profile
// (profile.go), and a request with other values gets another sandbox.
func (c *sandbox) limit(l Limits) (changed bool, err error) {
	was := c.limited
	if was.MemoryBytes == l.MemoryBytes && was.Processes == l.Processes && was.MilliCPUs == l.MilliCPUs {
		return false, nil
	}
	err = c.group.LimitMemory(l.MemoryBytes)
	if err == nil {
		err = c.group.LimitProcesses(l.pids())
	}
	if err == nil && was.MilliCPUs != l.MilliCPUs {
		err = c.group.LimitCPU(l.MilliCPUs)
	}
	if err != nil {
		return true, &SetupError{Step: "cgroup", Err: err}
	}
	c.limited = l
	return true, faultyLimits(c)
}

// assign sends a waiting sandbox its program. It returns when the exec of the first command
// has succeeded. A sandbox is assigned once; after an error the caller destroys it.
func (c *sandbox) assign(ctx context.Context, s Spec, io IO) error {
	// Closing the socket ends a write to an init that does not read.
	stop := context.AfterFunc(ctx, func() { c.control.File.Close() })
	defer stop()
	c.spec = s
	c.network.begin(ctx, c)
	changed, err := c.limit(s.Limits)
	if err != nil {
		return err
	}
	if changed { // verify compared the earlier values
		err := c.host.enforce(func() error { return c.group.Verify(s.Limits.MemoryBytes, s.Limits.pids()) })
		if err != nil {
			return &SetupError{Step: "posture", Err: err}
		}
	}
	// Init gets the whole program, or only the pid of the process that a Python zygote forked:
	// that process reads its program from its own socket to the daemon (pyzygote.Child.Run).
	deadline := initDeadline(s.Limits)
	kind, payload, command := pid1.FrameProgram, []byte(nil), []byte(nil)
	if c.forked == nil {
		payload, err = plan(s, deadline).Encode()
	} else {
		kind, payload = pid1.FrameForked, pid1.EncodeForked(c.first, deadline)
		command, err = s.pythonCommand().Encode()
	}
	if err != nil {
		return &SetupError{Step: "program", Err: err}
	}
	m, err := c.staging.Mounts(c.host.roots[s.Root], s.execution(), c.userns)
	defer m.Release() // init has received its own descriptors; after an error these are the mounts so far
	if err != nil {
		return &SetupError{Step: "workspace", Err: err}
	}
	// If a later step fails, destroy closes the pipes, which ends the goroutines that read them.
	c.pipes.start(io)
	if !stop() { // ctx has just ended, and its end closed the socket
		return step("start", context.Cause(ctx))
	}
	failpoint.Reach(failpoint.BeforeStart)
	notify := func() error { return c.control.Assign(initName(s.ID), m.Trees, m.Targets, kind, payload) }
	if c.forked == nil {
		// With the mounts init gets the program.
		if err := c.network.wait(); err != nil {
			return err
		}
		return c.begin(notify, pid1.FrameStarted)
	}
	if err := c.begin(notify, pid1.FrameMounted); err != nil {
		return err
	}
	if err := c.network.wait(); err != nil {
		return err
	}
	return step("Python zygote", c.forked.Run(command))
}

// execution returns the mounts of s.
func (s Spec) execution() mount.Execution {
	e := mount.Execution{Lower: s.Workspace.Lower}
	for _, m := range s.Mounts {
		e.Binds = append(e.Binds, mount.Bind(m))
	}
	return e
}

// initName is the process name of a running sandbox's init: the last 15 bytes of the
// program's ID, as much as the kernel keeps of a name (prctl(2)). With it the machine's
// root can find the sandbox of an execution, whose cgroup is named after its pair of ids (idPair.String).
func initName(id string) string { return id[max(0, len(id)-15):] }

// begin lets the program run: it calls notify, which writes to init, and waits for init's
// frame of the kind word.
//
// The end of the caller's ctx does not end begin: the program may already run, and the
// caller may have read its output. Stop ends such a program like any other, with a signal
// and the grace period.
func (c *sandbox) begin(notify func() error, word pid1.Frame) error {
	giveUp := time.AfterFunc(startPatience, func() { c.control.File.Close() })
	defer giveUp.Stop()
	if err := notify(); err != nil {
		return step("init", err)
	}
	if _, err := c.control.Expect(word, 0); err != nil {
		return step("init", err)
	}
	if !giveUp.Stop() { // the timer has just fired and closed the socket
		return step("start", context.DeadlineExceeded)
	}
	return nil
}
