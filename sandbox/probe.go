package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/preflight"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// A Boundary is a feature of this machine that sandboxes need, or a protection that was
// tried inside a sandbox. Its Name never changes, because configurations use it.
type Boundary = preflight.Boundary

// Boundaries tries which boundaries this machine supports, without opening a Host. Host.Probe
// tries the protections inside a sandbox.
func Boundaries(c Config) []Boundary {
	c = c.withDefaults()
	p := preflight.Config{
		StateDir: c.StateDir, RunDir: c.RunDir, CgroupParent: c.CgroupParent, FirstID: c.FirstID, IDs: c.IDs,
		Filters: compileFilters, Sockets: trySocketMemory,
	}
	if c.Networks {
		p.Network = tryNetwork
	}
	// The filters take half of the time of all tries, so they are compiled during the others.
	go compileFilters()
	return preflight.Machine(p)
}

// Lowerable lists the boundaries that a caller may go without: sandboxes can still be
// made. Without any other boundary no sandbox can be made, or its defects stay unknown.
func Lowerable() []string { return preflight.Lowerable() }

// Limits of the probe's sandbox. They are small, so that the probe reaches them soon. With less than half of probeMemory,
// the buffers of the probe's connections would exceed their part of it (cgroup.SocketBound).
const (
	probeWall      = 30 * time.Second
	probeMemory    = 32 << 20
	probeProcesses = 8
	probeDisk      = 1 << 20
	probeFiles     = 64
	probeOpenFiles = 64
)

// Probe tries in real sandboxes that each boundary holds. It runs a program that attempts
// forbidden actions and then uses up processes and memory. Then it looks for leftovers on
// the host. It returns the machine's boundaries, which Open found, and the boundaries of
// the sandboxes. A boundary that the program did not report is not found. An error means
// that no sandbox can be made; Probe then still returns the machine's boundaries.
func (h *Host) Probe(ctx context.Context) ([]Boundary, error) {
	p, err := preflight.NewProber(h.instance.run, idLocks, h.rootfs())
	if err != nil {
		return h.found, fmt.Errorf("sandbox: probe: %w", err)
	}
	defer p.Close()
	// A boundary must hold in the sandboxes of both makers.
	var cloned []Boundary
	var clonedErr error
	var tried sync.WaitGroup
	tried.Go(func() {
		if !onlyDirect(h) && h.pool.wait(ctx) {
			cloned, clonedErr = h.probe(ctx, p, h.probedClone())
		}
	})
	inside, err := h.probe(ctx, p, h.probedDirect())
	tried.Wait()
	return append(slices.Clone(h.found), preflight.InBoth(inside, cloned)...), errors.Join(err, clonedErr)
}

// A probed is the expected state of one maker's sandboxes.
type probed struct {
	name  string
	start func(context.Context, Spec, IO) (*Process, error)
	// The range of ids that /proc shows in the sandbox: ids of the parent user namespace.
	first, ids uint32
	filters    int // number of the daemon's filters
}

func (h *Host) probedDirect() probed {
	return probed{"direct", h.startDirect, h.config.FirstID, h.config.IDs, 1}
}

func (h *Host) probedClone() probed {
	return probed{"cloned", h.Start, 2, uint32(2*len(h.ids.used) - 2), 2} // the zygote keeps two ids for itself
}

// probe runs the probe's program in a sandbox of one maker, and returns the sandbox's boundaries
// after its teardown.
func (h *Host) probe(ctx context.Context, p *preflight.Prober, of probed) ([]Boundary, error) {
	s := Spec{
		ID:        "probe-" + of.name + "-" + p.Name,
		Program:   Program{{Pipeline: []Command{{Args: preflight.Command}}}},
		Workspace: Workspace{SizeBytes: probeDisk, Files: probeFiles},
		Limits:    Limits{Wall: probeWall, MemoryBytes: probeMemory, Processes: probeProcesses, OpenFiles: probeOpenFiles},
	}
	want, err := h.expected(s, of)
	if err == nil {
		s.Env, err = p.Env(want)
	}
	if err != nil {
		return nil, fmt.Errorf("sandbox: probe: %w", err)
	}
	var r preflight.Report
	process, err := of.start(ctx, s, IO{Stdout: &r})
	if err != nil {
		return nil, err
	}
	exit, err := process.Wait()
	<-process.sandbox.destroyed
	return r.Judge(preflight.End{
		Err: err, How: exit.End.String(), Code: exit.Code, Signal: exit.Signal,
		OutOfMemory: exit.End == OOMKilled, Killed: exit.OOMKills, RefusedForks: exit.PidsMax,
		CPU: exit.Usage.UserCPU + exit.Usage.SystemCPU, Unremoved: process.sandbox.unremoved,
	}), nil
}

// expected is the state that the probe should find in a sandbox with the Spec s.
func (h *Host) expected(s Spec, of probed) (preflight.Expected, error) {
	filters, err := pseudofs.OwnFilters()
	return preflight.Expected{
		FirstID: of.first, IDs: of.ids, Filters: filters + of.filters, Rlimits: wantRlimits(s),
		Root: h.roots[""].Table, Points: slices.Concat(mount.HostPoints(), maskedPaths),
		Hidden: filepath.Join(h.instance.state, "lock"),
		Disk:   s.Workspace.SizeBytes, Files: s.Workspace.Files, Sockets: h.cgroups.SocketBound(s.Limits.MemoryBytes),
		Memory: s.Limits.MemoryBytes, Processes: s.Limits.Processes,
	}, err
}
