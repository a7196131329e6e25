package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"
)

// startPatience bounds a start whose context has no deadline.
const startPatience = 60 * time.Second

// A sandbox is everything that exists on the host for one sandbox.
type sandbox struct {
	host      *Host
	spec      Spec
	ids       idPair
	group     group
	dir       string // staging's mount point
	staging   *staging
	pipes     *pipes
	control   *control
	oom       *oomNotifier
	destroyed chan struct{}           // closed when leave has done its best
	container *libcontainer.Container // nil: the zygote made it
	init      *libcontainer.Process

	// Of a sandbox that the zygote made.
	cloned    *cloned
	premounts *premounts  // nil: its mounts are made when it is known what runs in it
	userns    *os.File    // its user namespace
	held      []*os.File  // namespaces that shall not end with init
	limited   Limits      // what its cgroup has
	before    Usage       // by its init
	first     uint32      // the first process, in the sandbox
	forked    *forked     // the same if a Python zygote forked it, else nil
	refill    *time.Timer // pool.refill's; nil: not taken from the pool
}

func newSandbox(h *Host, s Spec) *sandbox {
	return &sandbox{host: h, spec: s, destroyed: make(chan struct{})}
}

// Start builds a sandbox and lets its program begin. It returns when the exec
// of the first command succeeded, or a *SetupError when it can't; nothing is
// left of the sandbox then. ctx bounds the start only, up to where the program may
// run: done later, it ends nothing.
func (h *Host) Start(ctx context.Context, s Spec, io IO) (*Process, error) {
	begin := time.Now()
	s = s.withDefaults()
	if err := cmp.Or(s.check(), h.knowsRoot(s.Root)); err != nil {
		return nil, &SetupError{Step: "spec", Err: err}
	}
	if err := h.reserve(s.ID); err != nil {
		return nil, &SetupError{Step: "id", Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	c, err := h.startSandbox(ctx, s, io)
	if err == nil {
		p := newProcess(c, io, begin)
		if err = h.admit(s.ID, p); err == nil {
			go p.supervise()
			return p, nil
		}
	}
	err = c.explain(ctx, err)
	if derr := c.destroy(); derr != nil {
		h.log().Error("sandbox left behind", "id", s.ID, "error", derr)
	}
	h.forget(s.ID)
	return nil, err
}

// startSandbox makes the sandbox, or takes one that is made, and starts the program.
func (h *Host) startSandbox(ctx context.Context, s Spec, io IO) (*sandbox, error) {
	if c := h.pool.take(s); c != nil {
		err := c.assign(ctx, s, io)
		c.refill = h.pool.refill()
		return c, err
	}
	c := newSandbox(h, s)
	err := c.build(ctx)
	if err == nil {
		err = c.release(ctx, io)
	}
	return c, err
}

// build makes the sandbox, up to its init.
func (c *sandbox) build(ctx context.Context) (err error) {
	if c.ids, err = c.host.ids.take(); err != nil {
		return &SetupError{Step: "ids", Err: err}
	}
	c.group = c.host.cgroups.group(c.host.groupName(), c.spec.ID)
	c.dir = filepath.Join(c.host.sandboxes(), c.ids.String())
	if err := os.Mkdir(c.dir, 0o711); err != nil {
		return &SetupError{Step: "workspace", Err: err}
	}
	if c.staging, err = stage(c.dir, c.spec, c.ids.script()); err != nil {
		return &SetupError{Step: "workspace", Err: err}
	}
	if err := c.host.stageRoot(c.staging, c.spec); err != nil {
		return &SetupError{Step: "root", Err: err}
	}
	if c.pipes, err = newPipes(); err != nil {
		return &SetupError{Step: "pipes", Err: err}
	}
	if err := c.run(ctx); err != nil {
		return &SetupError{Step: "container", Err: err}
	}
	// The sandbox has its own mounts by now. What this process doesn't keep
	// costs it nothing, and is not left behind if it is killed.
	if err := c.staging.release(); err != nil {
		return &SetupError{Step: "workspace", Err: err}
	}
	if err := os.Remove(c.dir); err != nil {
		return &SetupError{Step: "workspace", Err: err}
	}
	return nil
}

// run has libcontainer build the container and execute our init in it.
func (c *sandbox) run(ctx context.Context) (err error) {
	config := c.host.containerConfig(c.spec, c.ids, c.group, c.staging)
	c.host.faults.ask(config, false)
	if c.container, err = libcontainer.Create(c.host.containers(), c.spec.ID, config); err != nil {
		return err
	}
	ours, theirs, err := newControl()
	if err != nil {
		return err
	}
	defer theirs.Close()
	c.control = ours
	c.init = &libcontainer.Process{
		Args:       []string{"/proc/self/exe", initArg},
		Env:        []string{"HOME=/"}, // libcontainer would look it up
		Cwd:        "/",
		Stdin:      c.pipes.inside[0],
		Stdout:     c.pipes.inside[1],
		Stderr:     c.pipes.inside[2],
		ExtraFiles: []*os.File{theirs},
		Init:       true,
	}
	defer c.pipes.closeInside()
	stop := c.killOnCancel(ctx)
	defer stop()
	return c.container.Run(c.init)
}

// runPatience is how long libcontainer may take to notice by itself that it is
// no longer wanted. It is not disturbed before: killed in its first stages it
// leaves children to us that it has not told anybody about.
const runPatience = 2 * time.Second

// killOnCancel makes a start that hangs fail some time after it is canceled,
// by killing what is in the sandbox's cgroup. The returned func ends the watch
// and reaps what was killed.
func (c *sandbox) killOnCancel(ctx context.Context) func() {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		killed := map[int]bool{}
		for wait := runPatience; ; wait = 10 * time.Millisecond {
			select {
			case <-done:
				for pid := range killed {
					_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // unless libcontainer did
				}
				return
			case <-time.After(wait):
			}
			pids, _ := c.group.pids()
			for _, pid := range pids {
				killed[pid] = true
			}
			_ = c.group.kill() // the cgroup may not be there yet
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// release gives init its program, checks the first process and lets it exec.
func (c *sandbox) release(ctx context.Context, io IO) error {
	stop := context.AfterFunc(ctx, func() { c.control.file.Close() })
	defer stop()
	if _, err := c.control.expect(frameHello, 0); err != nil {
		return step("init", err)
	}
	l := c.spec.Limits
	if err := c.group.limitProcesses(l.Processes + 1); err != nil { // with init
		return &SetupError{Step: "cgroup", Err: err}
	}
	// libcontainer sets the memory limit, but not this one, whatever it is asked.
	if err := c.group.limitSockets(l.MemoryBytes); err != nil {
		return &SetupError{Step: "cgroup", Err: err}
	}
	if l.MilliCPUs > 0 {
		if err := c.group.limitCPU(l.MilliCPUs); err != nil {
			return &SetupError{Step: "cgroup", Err: err}
		}
	}
	if err := c.pipes.giveTo(c.ids.script()); err != nil {
		return &SetupError{Step: "pipes", Err: err}
	}
	program, err := encodeProgram(c.host.filters, c.spec, initDeadline(l))
	if err != nil {
		return &SetupError{Step: "program", Err: err}
	}
	if err := c.control.write(frameProgram, program); err != nil {
		return step("init", err)
	}
	ready, err := c.control.expect(frameReady, 1)
	if err != nil {
		return step("init", err)
	}
	want, err := c.posture()
	if err != nil {
		return &SetupError{Step: "posture", Err: err}
	}
	if err := c.host.faults.injectLimits(c.group, false); err != nil {
		return &SetupError{Step: "posture", Err: err}
	}
	err = c.host.enforce(func() error {
		_, err := want.check(ready[0])
		return err
	})
	if err != nil {
		return &SetupError{Step: "posture", Err: err}
	}
	// Before the program runs: what happens earlier is not told again.
	if c.oom, err = c.group.notifyOOM(); err != nil {
		return &SetupError{Step: "cgroup", Err: err}
	}
	c.pipes.start(io)
	if !stop() { // canceled just now, and the socket with it
		return step("start", context.Cause(ctx))
	}
	return c.begin(func() error { return c.control.write(frameGo, nil) }, frameStarted)
}

// step wraps err unless it says already how far the sandbox came.
func step(name string, err error) error {
	var setup *SetupError
	if err == nil || errors.As(err, &setup) {
		return err
	}
	return &SetupError{Step: name, Err: err}
}

// explain names the cause behind the error of a failed start, if it lies
// elsewhere: in the caller, or in too little memory.
func (c *sandbox) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return &SetupError{Step: "start", Err: cause}
	}
	kills, _ := c.group.oomKills() // libcontainer may have removed the count with the cgroup
	if kills > 0 || errors.Is(err, unix.ENOMEM) || strings.Contains(err.Error(), "memory limit") {
		return &SetupError{Step: "memory", Err: fmt.Errorf("%d bytes are too few to start in: %w", c.spec.Limits.MemoryBytes, err)}
	}
	return step("start", err)
}

// leave takes a sandbox apart in which nobody lives any more. Of a prepared one no
// caller waits for it: what is left are empty directories, mounts and namespaces
// that nobody can reach. It took so much memory at its peak.
func (c *sandbox) teardown(bytes int64) {
	destroy := func() {
		defer close(c.destroyed)
		if err := c.destroy(); err != nil {
			c.host.log().Error("sandbox left behind", "id", c.spec.ID, "error", err)
		}
	}
	if c.cloned == nil || !c.host.pool.deferTeardown(bytes, destroy) {
		destroy()
	}
}

// destroyPatience bounds how long the removal of a dead sandbox may take.
const destroyPatience = 5 * time.Second

// destroy kills what is left of the sandbox and removes it. Its ids are free
// again when all of it is gone, and else never in this instance.
func (c *sandbox) destroy() error {
	c.oom.stop()
	if c.control != nil {
		c.control.file.Close() // init ends the sandbox, if it lives
	}
	if c.pipes != nil {
		c.pipes.close()
	}
	c.premounts.close()
	err := c.destroyContainer()
	if c.staging != nil {
		err = errors.Join(err, c.staging.close())
	}
	if c.dir != "" {
		if rerr := unix.Rmdir(c.dir); rerr != nil && rerr != unix.ENOENT {
			err = errors.Join(err, fmt.Errorf("remove %s: %w", c.dir, rerr))
		}
	}
	if err == nil && c.ids.root != 0 {
		c.host.ids.release(c.ids)
	}
	return err
}

func (c *sandbox) destroyContainer() error {
	if c.cloned != nil {
		defer c.cloned.pidfd.Close()
		defer c.userns.Close() // nil: never opened
		defer closeFiles(c.held)
	}
	if c.forked != nil {
		c.forked.barrier.Close()
	}
	switch {
	case c.container == nil && c.cloned == nil:
		return c.group.removeSoon(destroyPatience)
	case c.container == nil:
		// Nearly always nobody is left.
		if err := c.group.removeDirs(); err == nil {
			return nil
		}
		// With init everybody goes. By its pidfd, as there may be too few files to look
		// into the cgroup.
		_ = unix.PidfdSendSignal(c.cloned.fd, unix.SIGKILL, nil, 0)
		if err := c.group.removeSoon(destroyPatience); err == nil {
			return nil
		}
		return c.group.clear(destroyPatience)
	}
	if err := c.group.clear(destroyPatience); err != nil {
		return err
	}
	if c.init != nil {
		_, _ = c.init.Wait() // reaps; a second time it only says so
	}
	return c.container.Destroy()
}
