package sandbox

import (
	"context"
	"time"
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

// blank is what a sandbox is made of before it is known what runs in it. A request's own,
// its variables and its code, are not held any longer than its program runs.
func (s Spec) blank() Spec {
	return Spec{Mounts: s.Mounts, Workspace: s.Workspace, Limits: s.Limits}
}

// prepare makes a sandbox with the zygote, for one program like that of s.
func (h *Host) prepare(m *zygote, in *pythonZygote, s Spec) (*sandbox, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	c, err := h.build(ctx, cloner{m, in}, s)
	if err != nil {
		c.discard()
		return nil, err
	}
	return c, nil
}

// waits says whether a prepared sandbox is still what it was. A dying init closes its
// socket first, and is dead some time after its last process has left the cgroups. The
// child of a Python zygote closes its barrier, and may say so itself before its zygote does.
func (c *sandbox) waits() bool {
	if c.forked != nil && (len(c.forked.ended) > 0 || !quiet(c.forked.barrier)) {
		return false
	}
	return !c.init.ended() && quiet(c.control.file)
}

// discard takes a prepared sandbox apart that no program ran in.
func (c *sandbox) discard() {
	if err := c.destroy(); err != nil {
		c.host.log().Error("prepared sandbox left behind", "slot", c.ids.String(), "error", err)
	}
}
