package sandbox

import (
	"context"
	"encoding/binary"
	"os"
	"slices"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"golang.org/x/sys/unix"
)

// cloner is the maker that has the zygote clone a sandbox.
type cloner struct {
	zygote *zygote
	python *pythonZygote // forks the first process; nil: init forks it
}

// preparable reports whether the zygote can make a sandbox for s. The zygote has its own
// network namespace. It can't enter the host's, which belongs to another user namespace
// (setns(2)).
func (s Spec) preparable() bool { return s.Network == NetworkNone }

// start makes the cgroup and sets its limits. Then the zygote clones init, which enters
// the cgroup. The limits come first, so that no process of the sandbox ever runs without them.
// start ignores ctx: its end closes the control socket, on which start waits.
func (z cloner) start(_ context.Context, c *sandbox, theirs *os.File) error {
	h := c.host
	c.faults = h.faults.of(true, c.spec.ID)
	c.group = h.cgroups.Slim(h.groupName(), "_"+c.ids.String())
	if err := c.group.Create(); err != nil {
		return step("cgroup", err)
	}
	if _, err := c.limit(c.spec.Limits); err != nil {
		return err
	}
	if err := c.pipes.giveTo(c.ids.script()); err != nil {
		return step("pipes", err)
	}
	procsFiles, err := c.group.ProcsFiles()
	if err != nil {
		return step("cgroup", err)
	}
	defer closeFiles(procsFiles)
	if err := z.clone(c, theirs, procsFiles); err != nil {
		return step("zygote", err)
	}
	theirs.Close() // so that a read reports init's end: init may die of its limits at once
	if z.python == nil {
		return c.expectFirst()
	}
	if _, err := c.control.Expect(pid1.FrameHello, 0); err != nil {
		return step("init", err)
	}
	c.forked, err = z.python.fork(c, procsFiles)
	c.init.filters++ // the filter of the Python zygote
	return step("Python zygote", err)
}

// clone sets c.init.
func (z cloner) clone(c *sandbox, theirs *os.File, procsFiles []*os.File) error {
	streams := c.pipes.inside
	if z.python != nil { // the forked process has the pipes, so init needs none
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer null.Close()
		streams = [3]*os.File{null, null, null}
	}
	root, err := c.rootTrees()
	defer root.Release()
	if err != nil {
		return step("root", err)
	}
	var fds []int
	for _, f := range slices.Concat([]*os.File{theirs}, streams[:]) {
		fds = append(fds, int(f.Fd()))
	}
	fds = append(fds, root.Trees...)
	for _, f := range procsFiles {
		fds = append(fds, int(f.Fd()))
	}
	c.init, err = z.zygote.make(c.spec, c.ids, fds, len(root.Trees), z.python == nil)
	return err
}

// make has the zygote clone a sandbox. fds are the sandbox's control socket, its three
// streams, the mounts of its root (as many as places) and its cgroup.procs files. If
// executes is true, init forks the first process.
func (m *zygote) make(s Spec, ids idPair, fds []int, places int, executes bool) (*initProcess, error) {
	limits := rlimits(s)
	b := pid1.PacketHeader(pid1.PacketMake, uint32(ids.index), ids.root-m.host.ids.first, uint32(s.Limits.OpenFiles), boolWord(executes),
		tmpFiles, uint32(len(fds)-4-places), uint32(len(limits)), uint32(places))
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Workspace.SizeBytes))
	for _, l := range limits {
		b = binary.LittleEndian.AppendUint64(b, uint64(l.Type))
		b = binary.LittleEndian.AppendUint64(b, l.Hard)
	}
	b = append(b, make([]byte, pid1.MakeBytes-len(b))...)
	pidfd, err := m.ask(b, uint32(ids.index), fds)
	if err != nil {
		return nil, err
	}
	pid, err := pidOf(pidfd)
	if err != nil {
		unix.Close(pidfd) // fails if the zygote sent none
		return nil, err
	}
	// The zygote's filter and the script's. Init loads another one later.
	i := &initProcess{filters: 2, spaces: m.spaces, devices: m.group}
	return i, i.open(pid, pidfd)
}
