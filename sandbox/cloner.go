package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/preflight"
	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
	"github.com/skillrun/skillrun/sandbox/internal/zygote"
)

// cloner is the maker that has the zygote clone a sandbox.
type cloner struct {
	zygote *zygote.Zygote
	python *pyzygote.Zygote // forks the first process; nil: init forks it
}

// start makes the cgroup and sets its limits. Then the zygote clones init, which enters
// the cgroup. The limits come first, so that no process of the sandbox ever runs without them.
func (z cloner) start(ctx context.Context, c *sandbox, theirs *os.File) error {
	h := c.host
	c.faults = faultsOf(h, true, c.spec.ID)
	c.group = h.cgroups.Slim(c.in.elem("_" + c.ids.String())...)
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
	if err := z.clone(ctx, c, theirs, procsFiles); err != nil {
		return step("zygote", err)
	}
	theirs.Close() // so that a read reports init's end: init may die of its limits at once
	if z.python == nil {
		return c.expectFirst()
	}
	if _, err := c.control.Expect(pid1.FrameHello, 0); err != nil {
		return step("init", err)
	}
	c.forked, err = c.forkFrom(z.python, procsFiles)
	c.init.filters++ // a filter holds for all children of a process, so the script has the Python zygote's, too
	return step("Python zygote", err)
}

// clone has the zygote clone init, and sets c.init. The zygote has its own copies of all descriptors after that, so the
// caller may close its copies.
func (z cloner) clone(ctx context.Context, c *sandbox, theirs *os.File, procsFiles []*os.File) error {
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
	pid, pidfd, err := z.zygote.Make(ctx, zygote.Sandbox{
		Number: c.ids.index, RootID: c.ids.root, OpenFiles: c.spec.Limits.OpenFiles, Executes: z.python == nil,
		TmpBytes: c.spec.Workspace.SizeBytes, TmpFiles: tmpFiles, Rlimits: rlimits(c.spec),
		Control: theirs, Streams: streams, Root: root.Trees, Procs: procsFiles,
	})
	if err != nil {
		return err
	}
	// The zygote's filter and the script's. Init loads another one later.
	c.init = &initProcess{filters: 2, spaces: z.zygote.Spaces(), devices: z.zygote.Group()}
	return c.init.open(pid, pidfd)
}

// startZygote starts a zygote for the sandboxes of one group. It returns only a zygote whose posture is right.
func (h *Host) startZygote(of *group) (*zygote.Zygote, error) {
	group, ids := of.zygoteCgroup(), of.ids.Load()
	config := h.zygoteConfig(group, ids)
	core := uint32(config.Rlimits[0].Hard)
	closeNamespaces, err := giveAway(config, ids.first)
	if err != nil {
		return nil, fmt.Errorf("zygote: %w", err)
	}
	defer closeNamespaces()
	z, err := zygote.Start(zygote.Config{
		Containers: of.containers(), Container: config, CoreLimit: core, Group: group, Parent: h.cgroups.Group(h.groupName()), FirstID: ids.first,
		Filters: h.filters, Python: h.config.PythonZygotes > 0, Masked: maskedPaths, Places: h.roots[""].Places(),
	})
	if err != nil {
		return nil, fmt.Errorf("zygote: %w", err)
	}
	if err := h.enforce(z.CheckPosture); err != nil {
		return nil, errors.Join(fmt.Errorf("zygote: posture: %w", err), z.Destroy())
	}
	return z, nil
}

// zygoteConfig is libcontainer's configuration of the zygote. Its user namespace has the ids of
// all sandboxes of its group, and no others.
func (h *Host) zygoteConfig(g cgroup.Group, ids *idBlock) *configs.Config {
	c := newConfig(h.rootfs(), []configs.IDMap{{ContainerID: 0, HostID: int64(ids.first), Size: int64(2 * len(ids.used))}})
	c.Rlimits = []configs.Rlimit{{Type: unix.RLIMIT_CORE, Hard: preflight.DumpLimit(), Soft: preflight.DumpLimit()}}
	c.Cgroups = &cgroups.Cgroup{Path: g.Path, Resources: &cgroups.Resources{Devices: cgroup.DeviceRules()}}
	zygote.Configure(c)
	faultyConfig(faultsOf(h, true, ""), c)
	return c
}

// startPythonZygote starts a Python zygote whose posture is right.
func (h *Host) startPythonZygote(z *zygote.Zygote, k pyzygote.Key) (*pyzygote.Zygote, error) {
	python, err := pyzygote.Start(z.Spawn, k, pyzygote.Config{Filter: h.filters.Script, FastExit: h.config.PythonFastExit, Log: &h.pythonLog})
	if err != nil {
		return nil, err
	}
	if err := h.enforce(func() error { return z.CheckPython(python.PID()) }); err != nil {
		python.Close()
		return nil, fmt.Errorf("posture: %w", err)
	}
	h.log().Debug("Python zygote started", "program", k.Name(), "version", python.Version(), "imported", python.Imported(), "failed", python.Failed())
	return python, nil
}
