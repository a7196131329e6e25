package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A profile is what a prepared sandbox has before it is known what runs in it, and
// can't change any more.
type profile struct {
	sizeBytes, files int64
	openFiles        int
	cpu              time.Duration
	python           pythonKey // of the Python zygote that its process was forked from; zero: it executes a program
}

func (s Spec) profile() profile {
	return profile{sizeBytes: s.Workspace.SizeBytes, files: s.Workspace.Files, openFiles: s.Limits.OpenFiles, cpu: s.Limits.CPU}
}

// preparable says whether the zygote can make a sandbox for s: what it makes has a
// network of its own and the host's root.
func (s Spec) preparable() bool { return s.Network == NetworkNone && s.Root == "" && !s.unprepared }

// blank is what a sandbox is made of before it is known what runs in it. A request's own,
// its variables and its code, are not held any longer than its program runs.
func (s Spec) blank() Spec {
	return Spec{Mounts: s.Mounts, Workspace: s.Workspace, Limits: s.Limits}
}

// preparedPoints is how many mount points the workspace of a prepared sandbox has
// room for: one lower layer, and a skill's with the directory above it and its layer.
const preparedPoints = 4

// prepare makes a sandbox like that of s, up to the first process, which has dropped
// everything, has been looked at and waits for what it is to execute: a child of its
// init, or of in if that is not nil. Used once.
func (h *Host) prepare(m *zygote, in *pythonZygote, s Spec) (_ *sandbox, err error) {
	c := newSandbox(h, s)
	defer func() {
		if err != nil {
			c.discard()
		}
	}()
	if c.ids, err = h.ids.take(); err != nil {
		return nil, &SetupError{Step: "ids", Err: err}
	}
	c.group = h.cgroups.slim(h.groupName(), "_"+c.ids.String())
	if err := c.group.create(); err != nil {
		return nil, &SetupError{Step: "cgroup", Err: err}
	}
	if _, err := c.limit(s.Limits); err != nil {
		return nil, err
	}
	dir := filepath.Join(h.sandboxes(), c.ids.String())
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, &SetupError{Step: "workspace", Err: err}
	}
	c.dir = dir
	if c.staging, err = newStaging(c.dir, s.Workspace, preparedPoints, c.ids.script()); err != nil {
		return nil, &SetupError{Step: "workspace", Err: err}
	}
	if c.pipes, err = newPipes(); err != nil {
		return nil, &SetupError{Step: "pipes", Err: err}
	}
	if err := c.pipes.giveTo(c.ids.script()); err != nil {
		return nil, &SetupError{Step: "pipes", Err: err}
	}
	if err := c.cloneInit(m, in); err != nil {
		return nil, step("zygote", err)
	}
	return c, c.verify()
}

// limit sets the limits that can be set at any time, unless they are. It reports
// whether it had to.
func (c *sandbox) limit(l Limits) (changed bool, err error) {
	was := c.limited
	if was.MemoryBytes == l.MemoryBytes && was.Processes == l.Processes && was.MilliCPUs == l.MilliCPUs {
		return false, nil
	}
	err = c.group.limitMemory(l.MemoryBytes)
	if err == nil {
		err = c.group.limitProcesses(l.Processes + 1) // with init
	}
	if err == nil && was.MilliCPUs != l.MilliCPUs {
		err = c.group.limitCPU(l.MilliCPUs)
	}
	if err != nil {
		return true, &SetupError{Step: "cgroup", Err: err}
	}
	c.limited = l
	return true, c.host.faults.injectLimits(c.group, true)
}

// cloneInit has the zygote clone the sandbox's init, and waits for its first process.
func (c *sandbox) cloneInit(m *zygote, in *pythonZygote) error {
	ours, theirs, err := newControl()
	if err != nil {
		return err
	}
	defer theirs.Close()
	c.control = ours
	procsFiles, err := c.group.procsFiles()
	if err != nil {
		return err
	}
	defer closeFiles(procsFiles)
	defer c.pipes.closeInside()
	streams := c.pipes.inside
	if in != nil { // they are not init's
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer null.Close()
		streams = [3]*os.File{null, null, null}
	}
	root, err := c.host.rootTrees(c.staging, "", true)
	defer root.close()
	if err != nil {
		return step("root", err)
	}
	var fds []int
	for _, f := range slices.Concat([]*os.File{theirs}, streams[:]) {
		fds = append(fds, int(f.Fd()))
	}
	fds = append(fds, root.trees...)
	for _, f := range procsFiles {
		fds = append(fds, int(f.Fd()))
	}
	if c.cloned, err = m.make(c.spec, c.ids, fds, in == nil); err != nil {
		return err
	}
	theirs.Close() // so that its end is seen: init may die of its limits at once
	stop := time.AfterFunc(startPatience, func() { c.control.file.Close() })
	defer stop.Stop()
	if in == nil {
		ready, err := c.control.expect(frameReady, 1)
		if err == nil {
			c.first = ready[0]
		}
		return step("init", err)
	}
	if _, err := c.control.expect(frameHello, 0); err != nil {
		return step("init", err)
	}
	c.forked, err = in.fork(c, procsFiles)
	return step("Python zygote", err)
}

// verify reads the posture of the first process, which waits, and keeps what is
// needed of the sandbox.
func (c *sandbox) verify() error {
	want, err := c.posture()
	if err != nil {
		return &SetupError{Step: "posture", Err: err}
	}
	err = c.host.enforce(func() (err error) {
		c.first, err = want.check(c.first)
		return err
	})
	if err != nil {
		return &SetupError{Step: "posture", Err: err}
	}
	if c.oom, err = c.group.notifyOOM(); err != nil {
		return &SetupError{Step: "cgroup", Err: err}
	}
	// The owner of what a mount shows is mapped by the sandbox's own namespace.
	if c.userns, err = openNamespace(c.cloned.pid, "user"); err != nil {
		return &SetupError{Step: "posture", Err: err}
	}
	// Who is the last user of one of these has the kernel take apart what is in it,
	// some milliseconds of work and of waiting. That shall not be init, on whose end the
	// answer waits.
	for _, name := range []string{"mnt", "net", "ipc"} {
		f, err := openNamespace(c.cloned.pid, name)
		if err != nil {
			return &SetupError{Step: "posture", Err: err}
		}
		c.held = append(c.held, f)
	}
	c.before = c.group.cpuUsage()
	return nil
}

func openNamespace(pid int, name string) (*os.File, error) {
	return openQuiet(fmt.Sprintf("/proc/%d/ns/%s", pid, name), unix.O_RDONLY)
}

// waits says whether a prepared sandbox is still what it was. A dying init closes its
// socket first, and is dead some time after its last process has left the cgroups. The
// child of a Python zygote closes its barrier, and may say so itself before its zygote does.
func (c *sandbox) waits() bool {
	if c.forked != nil && (len(c.forked.ended) > 0 || !quiet(c.forked.barrier)) {
		return false
	}
	return !c.cloned.ended() && quiet(c.control.file)
}

// quiet says whether a socket has nothing to read, not even its end.
func quiet(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = conn.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		nothing = n == 0 && err == nil
	})
	return err == nil && nothing
}

// assign gives a prepared sandbox its program and returns when the exec of the
// first command succeeded.
func (c *sandbox) assign(ctx context.Context, s Spec, io IO) error {
	stop := context.AfterFunc(ctx, func() { c.control.file.Close() })
	defer stop()
	c.spec = s
	changed, err := c.limit(s.Limits)
	if err != nil {
		return err
	}
	if changed {
		err := c.host.enforce(func() error { return c.group.verify(s.Limits.MemoryBytes, s.Limits.Processes+1) })
		if err != nil {
			return &SetupError{Step: "posture", Err: err}
		}
	}
	deadline := initDeadline(s.Limits)
	kind, payload := uint32(frameProgram), []byte(nil)
	if c.forked == nil {
		payload, err = encodeProgram(filters{}, s, deadline)
	} else {
		kind, payload = frameForked, encodeForked(c.first, deadline)
	}
	if err != nil {
		return &SetupError{Step: "program", Err: err}
	}
	m, err := c.mounts()
	defer m.close()
	if err != nil {
		return &SetupError{Step: "workspace", Err: err}
	}
	c.pipes.start(io)
	if !stop() { // canceled just now, and the socket with it
		return step("start", context.Cause(ctx))
	}
	notify := func() error { return c.control.assign(initName(s.ID), m.trees, m.targets, kind, payload) }
	if c.forked == nil {
		return c.begin(notify, frameStarted)
	}
	if err := c.begin(notify, frameMounted); err != nil {
		return err
	}
	return c.forked.run(s)
}

// initName is what the init of a running sandbox is called: the end of the program's
// ID, as much as the kernel keeps of a name. By it the machine's root finds the
// sandbox of an execution, whose cgroup is named after its slot.
func initName(id string) string { return id[max(0, len(id)-15):] }

// discard takes a prepared sandbox apart that no program ran in.
func (c *sandbox) discard() {
	if err := c.destroy(); err != nil {
		c.host.log().Error("prepared sandbox left behind", "slot", c.ids.String(), "error", err)
	}
}
