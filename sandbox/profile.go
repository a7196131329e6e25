package sandbox

import (
	"context"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
	"github.com/skillrun/skillrun/sandbox/internal/socket"
	"github.com/skillrun/skillrun/sandbox/internal/zygote"
)

// A profile is the part of a Spec that the daemon must know before it has a sandbox made.
// It cannot change afterwards.
type profile struct {
	group            string // Spec.Group
	root             string // Spec.Root
	sizeBytes, files int64
	openFiles        int
	cpu              time.Duration
	network          bool      // the sandbox has an interface
	python           pythonKey // of the Python zygote that forked the first process; zero: init forked it
}

func (s Spec) profile() profile {
	return profile{group: s.Group, root: s.Root, sizeBytes: s.Workspace.SizeBytes, files: s.Workspace.Files, openFiles: s.Limits.OpenFiles, cpu: s.Limits.CPU, network: s.Network != nil}
}

// blank returns the parts of s that a sandbox needs before its program is known. It leaves out everything of
// the skill and of the request: the daemon keeps those only while the program runs.
func (s Spec) blank() Spec {
	b := Spec{Group: s.Group, Root: s.Root, Workspace: Workspace{SizeBytes: s.Workspace.SizeBytes, Files: s.Workspace.Files}, Limits: s.Limits}
	if s.Network != nil {
		b.Network = unassigned{}
	}
	return b
}

// buildCloned has the zygote make a sandbox for one program with s's profile.
func (h *Host) buildCloned(ctx context.Context, z *zygote.Zygote, python *pyzygote.Zygote, s Spec) (*sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	c, err := h.build(ctx, cloner{z, python}, s)
	if err != nil {
		c.discard()
		return nil, err
	}
	return c, nil
}

// waits reports whether a waiting sandbox can still take a program. A dying init closes
// its socket first; its pidfd reports the end only after the sandbox's last process has
// left the cgroups.
func (c *sandbox) waits() bool {
	if c.forked != nil && !c.forked.Waits() {
		return false
	}
	return !c.init.ended() && socket.Quiet(c.control.File)
}

// discard destroys a sandbox in which no program has run.
func (c *sandbox) discard() {
	if err := c.destroy(); err != nil {
		c.host.log().Error("a prewarmed sandbox was not removed", "sandbox", c.ids.String(), "err", err)
	}
}
