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

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// startPatience bounds a start whose context has no deadline.
const startPatience = 60 * time.Second

// A sandbox is everything that exists on the host for one sandbox.
type sandbox struct {
	host      *Host
	spec      Spec
	in        *group // held from build to destroy; nil: the build has failed before
	ids       idPair // zero: none taken yet
	group     cgroup.Group
	dir       string // staging's mount point
	staging   *mount.Staging
	pipes     *pipes
	control   *pid1.Control
	init      *initProcess    // nil: not made yet
	first     uint32          // pid of the first process in the sandbox
	forked    *pyzygote.Child // the first process if a Python zygote forked it, else nil
	oom       *cgroup.OOMNotifier
	userns    *os.File      // the sandbox's user namespace
	held      []*os.File    // namespaces that the daemon destroys, not init
	netns     *os.File      // the one of held that is the network's
	device    *device       // the interface until its Network has it, else nil
	network   *attachment   // nil: none
	prewarmed bool          // made before its program was known
	limited   Limits        // limits that the cgroup has
	before    cgroup.Usage  // of init, before the program starts
	refill    *time.Timer   // from pool.refill; nil: not taken from the pool
	faults    faults        // empty, except in a build for tests (fault_inject.go)
	unremoved string        // a directory of the cgroup that destroy could not remove; "" for none
	destroyed chan struct{} // closed when teardown has ended, with or without an error
}

// Start builds a sandbox and starts its program. It returns when the exec of the first
// command has succeeded. After a failure it returns a *SetupError and has removed the
// sandbox. ctx bounds only the start: once the program may run, the end of ctx has no
// effect.
func (h *Host) Start(ctx context.Context, s Spec, io IO) (*Process, error) {
	return h.start(ctx, s, io, h.pool.take)
}

// startDirect is Start in a sandbox that libcontainer makes, even if there is a zygote.
func (h *Host) startDirect(ctx context.Context, s Spec, io IO) (*Process, error) {
	return h.start(ctx, s, io, func(context.Context, Spec) *sandbox { return nil })
}

// start does what Start documents. take returns a sandbox of the pool, or nil.
func (h *Host) start(ctx context.Context, s Spec, io IO, take func(context.Context, Spec) *sandbox) (_ *Process, err error) {
	begin := time.Now()
	network := newAttachment(s.Network)
	defer func() {
		if err != nil {
			network.detach()
		}
	}()
	s = s.withDefaults()
	if err := cmp.Or(s.check(), h.knowsRoot(s.Root)); err != nil {
		return nil, &SetupError{Step: "spec", Err: err}
	}
	if err := h.reserve(s.ID); err != nil {
		return nil, &SetupError{Step: "id", Err: err}
	}
	in, err := h.groups.enter(s.Group)
	if err != nil {
		h.forget(s.ID)
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	c := take(ctx, s)
	h.starts.count(c)
	if c == nil {
		c, err = h.build(ctx, direct{h}, s)
	} else {
		c.refill = h.pool.refill()
	}
	if err == nil {
		c.network = network
		err = c.assign(ctx, s, io)
	}
	if err == nil {
		p := newProcess(c, io, begin)
		if err = h.admit(s.ID, p); err == nil {
			go p.supervise()
			return p, nil
		}
	}
	err = c.explain(ctx, err)
	if derr := c.destroy(); derr != nil {
		h.log().Error("a sandbox was not removed", "execution", s.ID, "err", derr)
	}
	h.groups.leave(in)
	h.forget(s.ID)
	return nil, err
}

// build makes a blank sandbox for programs with s's profile. When it returns, the first
// process waits and its posture is right. The sandbox is not nil after an error: the
// caller destroys it.
func (h *Host) build(ctx context.Context, m maker, s Spec) (c *sandbox, err error) {
	c = &sandbox{host: h, spec: s, destroyed: make(chan struct{})}
	if cause := context.Cause(ctx); cause != nil {
		return c, step("start", cause)
	}
	if c.in, err = h.groups.hold(s.Group); err != nil {
		return c, &SetupError{Step: groupStep, Err: err}
	}
	if c.ids, err = c.in.ids.Load().take(); err != nil {
		return c, &SetupError{Step: "ids", Err: err}
	}
	dir := filepath.Join(h.sandboxes(), c.ids.String())
	if err := os.Mkdir(dir, 0o711); err != nil {
		return c, &SetupError{Step: "workspace", Err: err}
	}
	c.dir = dir
	if c.staging, err = mount.NewStaging(c.dir, mount.Size{Bytes: s.Workspace.SizeBytes, Files: s.Workspace.Files}, c.ids.script()); err != nil {
		return c, &SetupError{Step: "workspace", Err: err}
	}
	if c.pipes, err = newPipes(); err != nil {
		return c, &SetupError{Step: "pipes", Err: err}
	}
	defer c.pipes.closeInside()
	ours, theirs, err := pid1.NewControl()
	if err != nil {
		return c, &SetupError{Step: "pipes", Err: err}
	}
	defer theirs.Close()
	c.control = ours
	// Every wait of the start is a read of this socket, so the end of ctx ends the start.
	stop := context.AfterFunc(ctx, func() { ours.File.Close() })
	defer stop()
	if err := m.start(ctx, c, theirs); err != nil {
		return c, err
	}
	if err := c.verify(); err != nil {
		return c, err
	}
	if s.Network != nil {
		if c.device, err = makeDevice(c.netns); err != nil {
			return c, err
		}
	}
	if !stop() { // ctx has just ended, and its end closed the socket
		return c, step("start", context.Cause(ctx))
	}
	return c, nil
}

// step wraps err in a *SetupError, unless err is one. A failure that init reports has its
// own name of the step.
func step(name string, err error) error {
	var setup *SetupError
	if err == nil || errors.As(err, &setup) {
		return err
	}
	if failure := (*pid1.Failure)(nil); errors.As(err, &failure) {
		return &SetupError{Step: failure.Stage, Err: failure.Err}
	}
	return &SetupError{Step: name, Err: err}
}

// explain replaces the error of a failed start by its cause, if the caller ended ctx or
// the memory limit is too low.
func (c *sandbox) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return &SetupError{Step: "start", Err: cause}
	}
	if err := c.explainGroup(err); err != nil {
		return err
	}
	kills, _ := c.group.OOMKills() // libcontainer may have removed the count with the cgroup
	if kills > 0 || errors.Is(err, unix.ENOMEM) || strings.Contains(err.Error(), "memory limit") {
		return &SetupError{Step: "memory", Err: fmt.Errorf("%d bytes are too few to start a sandbox: %w", c.spec.Limits.MemoryBytes, err)}
	}
	return step("start", err)
}

// explainGroup returns an error if the limits of the sandbox's group are the cause of err, else nil.
func (c *sandbox) explainGroup(err error) error {
	if c.in == nil || c.in.name == "" {
		return nil
	}
	kills, _ := c.group.OOMKills()
	if kills > 0 && c.oomScope() == GroupMemory {
		return &SetupError{Step: groupStep, Err: fmt.Errorf("%w of memory: %w", ErrGroupFull, err)}
	}
	if refused := c.in.cgroup().RefusedForks(); errors.Is(err, unix.EAGAIN) && refused+c.group.RefusedForks() > 0 {
		return &SetupError{Step: groupStep, Err: fmt.Errorf("%w of processes: %w", ErrGroupFull, err)}
	}
	return nil
}

// oomScope says whose memory limit made the kernel kill a process of the sandbox. Its own limit comes first: a group
// also counts the memory of its sandboxes, so both can have been reached.
func (c *sandbox) oomScope() OOMScope {
	switch {
	case c.group.ReachedMemoryLimit():
		return OwnMemory
	case c.in.name != "" && c.in.cgroup().ReachedMemoryLimit():
		return GroupMemory
	}
	return MachineMemory
}
