//go:build skillrun_faults

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

// A build with the tag skillrun_faults is for tests only: its sandboxes lack the layer that
// the environment names. The hostile suite runs against them and must notice. Without the
// tag this file is not compiled, and no other code can take a layer off.

// faultsVar names the layer to take off, or several joined by " + ". Without it the
// sandboxes have all layers. With ", read back" after the name, the daemon checks the
// posture of each program as in a release, which finds most faults before an attack does.
// The sandbox of Probe then has all layers, so that a daemon starts.
const faultsVar = "SKILLRUN_FAULT"

const readBack = ", read back"

// A fault takes one layer off. A nil func changes nothing.
type fault struct {
	off     string // lines for pid1/fault.c
	config  func(*configs.Config)
	limits  func(*sandbox) error
	filters func(seccomp.Filters) seccomp.Filters
	trees   func(*sandbox, *mount.List) error // faults.trees
	unread  bool                              // faults.unread

	unmetered bool // faults.unmetered
}

const andLayer = " + "

// faultsByName are the layers of sandboxes that libcontainer makes, by the names that faultsVar and
// the hostile suite's mutations.json use.
var faultsByName = map[string]fault{
	"user namespace": {
		config: func(c *configs.Config) {
			leaveOut(configs.NEWUSER)(c)
			c.UIDMappings, c.GIDMappings = nil, nil
			c.Sysctl = nil // in the machine's user namespace they would change the machine
		},
		// The program is the machine's user 1000, which does not own the workspace. There
		// is no user namespace to map owners by.
		limits: func(c *sandbox) (err error) {
			c.userns.Close()
			if c.userns, err = pid1.OpenUserNamespace(c.ids.script()); err != nil {
				return err
			}
			return os.Chmod(filepath.Join(c.dir, "upper"), 0o777)
		},
	},
	"seccomp": {filters: func(seccomp.Filters) seccomp.Filters {
		return seccomp.Filters{Init: allowing, Script: allowing}
	}},
	// The program stays root of its sandbox, with init's capabilities and more.
	"capabilities": {
		config: func(c *configs.Config) {
			all := slices.Concat(initCapabilities, []string{
				"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_IPC_LOCK", "CAP_MKNOD", "CAP_NET_ADMIN",
				"CAP_NET_RAW", "CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
			})
			c.Capabilities = &configs.Capabilities{Bounding: all, Effective: all, Permitted: all}
		},
		off: "ids\nbounding set\ncapabilities",
	},
	"ids":              {off: "ids"},
	"group":            {off: "group"},
	"bounding set":     {off: "bounding set"},
	"read-only proc":   {off: "read-only proc"},
	"network":          {config: leaveOut(configs.NEWNET)},
	"masks":            {off: "read-only proc", config: func(c *configs.Config) { c.MaskPaths = nil }},
	"ipc namespace":    {config: leaveOut(configs.NEWIPC)},
	"uts namespace":    {config: func(c *configs.Config) { leaveOut(configs.NEWUTS)(c); c.Hostname = "" }},
	"cgroup namespace": {config: leaveOut(configs.NEWCGROUP)},
	"time namespace":   {config: leaveOut(configs.NEWTIME)},
	// A sandbox can't mount a proc of a PID namespace that its user namespace doesn't own.
	"pid namespace": {config: func(c *configs.Config) {
		leaveOut(configs.NEWPID)(c)
		hostProc(c)
	}},
	"process view": {config: hostProc},
	"memory limit": {limits: func(c *sandbox) error {
		// memsw first: on v1 the kernel refuses a memory limit above it.
		g, files := c.group, []string{"memory.memsw.limit_in_bytes", "memory.limit_in_bytes"}
		if g.Unified {
			files = []string{"memory.max"}
		}
		for _, name := range files {
			err := os.WriteFile(g.File("memory", name), []byte(strconv.Itoa(muchMemory)), 0)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	}},
	"process limit": {limits: func(c *sandbox) error { return c.group.LimitProcesses(manyProcesses) }},
	// On v2 the memory limit covers socket buffers, too.
	"socket buffers": {unmetered: true, limits: func(c *sandbox) error { return c.group.LimitSockets(cgroup.SocketShare * muchMemory) }}, // the meter would end the program first
	"socket memory":  {unmetered: true},
	"core dumps": {config: func(c *configs.Config) {
		for i := range c.Rlimits {
			if c.Rlimits[i].Type == unix.RLIMIT_CORE {
				c.Rlimits[i].Soft, c.Rlimits[i].Hard = muchMemory, muchMemory
			}
		}
	}},
	"posture":   {unread: true},
	"sysctls":   {config: func(c *configs.Config) { c.Sysctl = nil }},
	"oom score": {config: func(c *configs.Config) { c.OomScoreAdj = new(0) }},
	"sizes": {config: func(c *configs.Config) {
		for _, m := range c.Mounts {
			if m.Device == "tmpfs" && strings.Contains(m.Data, "mode=1777") {
				m.Data = "mode=1777"
			}
		}
	}},
	"mount flags": {config: func(c *configs.Config) {
		for _, m := range c.Mounts {
			if m.Destination != "/dev" { // a bind mount, whose flags a user namespace can't clear
				m.Flags &^= unix.MS_NOEXEC | unix.MS_NOSUID | unix.MS_NODEV
			}
		}
	}},
	"devices": {trees: addTerminal},
	"inodes":  {trees: sharedInodes},
	"files of the host": {config: func(c *configs.Config) {
		c.Mounts = append(c.Mounts, &configs.Mount{
			Source: "/var", Destination: "/var", Device: "bind", Flags: unix.MS_BIND | unix.MS_REC | unix.MS_RDONLY | noExec,
		})
	}},
}

// Limits of a sandbox whose own limit is off, so that the machine survives.
const (
	muchMemory    = 1 << 30
	manyProcesses = 6000
)

// injectFaults returns the faults for the layer that the environment names.
func injectFaults(h *Host) (f faults, err error) {
	layer, kept := strings.CutSuffix(os.Getenv(faultsVar), readBack)
	if layer == "" {
		return f, nil
	}
	if name, ok := strings.CutPrefix(layer, faultZygote); ok {
		return h.injectZygoteFaults(zygoteFaults, name, kept, false)
	}
	if name, ok := strings.CutPrefix(layer, faultForked); ok {
		return h.injectZygoteFaults(forkedFaults, name, kept, true)
	}
	all, err := named(faultsByName, layer)
	if err != nil {
		return f, err
	}
	h.log().Warn("THIS BUILD IS FOR TESTS: its sandboxes lack a layer", "layer", layer)
	list, err := h.faultList(all)
	if err != nil {
		return f, err
	}
	f = faults{maker: faultyDirect, config: func(c *configs.Config) {
		if list != nil {
			c.Mounts = append(c.Mounts, list)
		}
		for _, w := range all {
			if w.config != nil {
				w.config(c)
			}
		}
	}}
	if kept {
		f.spared = "probe-"
	} else {
		f.limits = func(c *sandbox) (err error) {
			for _, w := range all {
				if w.limits != nil {
					err = errors.Join(err, w.limits(c))
				}
			}
			return err
		}
	}
	f.trees = func(c *sandbox, l *mount.List) (err error) {
		for _, w := range all {
			if w.trees != nil {
				err = errors.Join(err, w.trees(c, l))
			}
		}
		return err
	}
	for _, w := range all {
		f.unread = f.unread || w.unread
		f.unmetered = f.unmetered || w.unmetered
		if w.filters != nil {
			h.filters = w.filters(h.filters)
		}
	}
	return f, nil
}

// named returns the layers that one string names.
func named[W any](all map[string]W, layers string) (list []W, err error) {
	for _, name := range strings.Split(layers, andLayer) {
		w, ok := all[name]
		if !ok {
			return nil, fmt.Errorf("%s: no layer %q", faultsVar, name)
		}
		list = append(list, w)
	}
	return list, nil
}

// faultList returns a mount with the list of layers that are off in an init that
// libcontainer makes. pid1/fault.c reads the list and unmounts it. It returns nil if fault.c has
// nothing to take off.
func (h *Host) faultList(all []fault) (*configs.Mount, error) {
	var off strings.Builder
	for _, w := range all {
		if w.off != "" {
			fmt.Fprintln(&off, w.off)
		}
	}
	if off.Len() == 0 {
		return nil, nil
	}
	dir := filepath.Join(h.instance.run, "faults")
	err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "off"), []byte(off.String()), 0o644))
	return &configs.Mount{Source: dir, Destination: pyzygote.Dir, Device: "bind", Flags: unix.MS_BIND | unix.MS_RDONLY | noExec}, err
}

// leaveOut shares a namespace with the daemon. Settings of the namespace go with it: libcontainer
// refuses settings of a namespace that it does not make.
func leaveOut(kind configs.NamespaceType) func(*configs.Config) {
	return func(c *configs.Config) {
		c.Namespaces = slices.DeleteFunc(c.Namespaces, func(n configs.Namespace) bool { return n.Type == kind })
		switch kind {
		case configs.NEWNET:
			c.Networks = nil
			delete(c.Sysctl, sysctlTimeWait)
			delete(c.Sysctl, sysctlStamps)
		case configs.NEWTIME:
			c.TimeOffsets = nil
		}
	}
}

// hostProc shows the machine's processes: it binds the machine's /proc, without masks.
func hostProc(c *configs.Config) {
	for _, m := range c.Mounts {
		if m.Destination == "/proc" {
			*m = configs.Mount{Source: "/proc", Destination: "/proc", Device: "bind", Flags: unix.MS_BIND | unix.MS_REC | noExec}
		}
	}
	c.MaskPaths = nil
}

// addTerminal adds a device of the machine.
func addTerminal(c *sandbox, _ *mount.List) error {
	path := filepath.Join(c.staging.DevicesDir(), "tty")
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))); err != nil {
		return err
	}
	return os.Chmod(path, 0o666)
}

// sharedInodes mounts the layers of the root instead of overlays of them.
func sharedInodes(c *sandbox, l *mount.List) error {
	for _, layer := range c.host.roots[c.spec.Root].Layers {
		i := slices.Index(l.Targets, layer.Place)
		tree, err := mount.CloneReadOnly(layer.Dirs[0], 0)
		if err != nil {
			return err
		}
		unix.Close(l.Trees[i])
		l.Trees[i] = tree
	}
	return nil
}

// allowing is a filter of one instruction that allows every call: struct sock_filter with the code
// BPF_RET and the value SECCOMP_RET_ALLOW, 0x7fff0000, in little-endian order.
var allowing = []byte{unix.BPF_RET, 0, 0, 0, 0, 0, 0xff, 0x7f}
