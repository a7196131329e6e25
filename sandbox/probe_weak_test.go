//go:build skillrun_faults

package sandbox

// Sandboxes can lack a layer in a build with this tag only: make test runs this file's test with it.

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
)

// instructions returns a seccomp filter that does not come from seccomp.yaml.
func instructions(list ...unix.SockFilter) []byte {
	var b bytes.Buffer
	for _, i := range list {
		if err := binary.Write(&b, binary.NativeEndian, i); err != nil {
			panic(err) // into memory, of a fixed size
		}
	}
	return b.Bytes()
}

var allowAll = instructions(unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW})

// deadly returns a filter that allows every call except one, which ends the process.
func deadly(number int) []byte {
	return instructions(unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(number)},
		unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_KILL_PROCESS}, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW})
}

func without(kind configs.NamespaceType) func(*configs.Config) {
	return func(c *configs.Config) {
		c.Namespaces = slices.DeleteFunc(c.Namespaces, func(n configs.Namespace) bool { return n.Type == kind })
		if kind == configs.NEWNET {
			c.Networks = nil
			delete(c.Sysctl, sysctlTimeWait)
			delete(c.Sysctl, sysctlStamps)
		}
		if kind == configs.NEWTIME {
			c.TimeOffsets = nil
		}
	}
}

func changeMount(target string, change func(*configs.Mount)) func(*configs.Config) {
	return func(c *configs.Config) {
		for _, m := range c.Mounts {
			if m.Destination == target {
				change(m)
			}
		}
	}
}

func addMount(m configs.Mount) func(*configs.Config) {
	return func(c *configs.Config) { c.Mounts = append(c.Mounts, &m) }
}

// onANetwork returns the check that reports the host's interfaces, if the host has any.
func onANetwork() []string {
	all, _ := net.Interfaces() // after an error the host counts as one without interfaces
	if slices.ContainsFunc(all, func(i net.Interface) bool { return i.Flags&net.FlagLoopback == 0 }) {
		return []string{"no way out"}
	}
	return nil
}

// A mutation takes one layer off.
type mutation struct {
	name    string
	trees   func(*sandbox, *mount.List) error
	config  func(*configs.Config)
	limits  func(*sandbox) error
	filters func(seccomp.Filters) seccomp.Filters
	want    []string // checks that must report it
	refused bool     // no sandbox can be made without the layer; want is empty
	onlyV1  bool     // cgroup v2 has no such layer
}

var mutations = []mutation{
	{name: "no system call filter", filters: func(f seccomp.Filters) seccomp.Filters { return seccomp.Filters{Init: f.Init, Script: allowAll} }, want: []string{
		"terminals", "processes in new namespaces", "priority inheritance", "mounting", "new namespaces", "tracing", "keyrings",
		"io_uring", "file handles", "changing ids", "priorities", "page cache", "performance counters", "no core dumps",
	}},
	// Half a report is not enough: a check that is not reported is missing.
	{name: "a program that is cut", filters: func(f seccomp.Filters) seccomp.Filters {
		return seccomp.Filters{Init: f.Init, Script: deadly(unix.SYS_STATFS)}
	}, want: []string{
		"complete report", "settings of the kernel", "disk limit", "mounting", "process limit", "memory limit",
	}},
	{name: "ids of the host", config: func(c *configs.Config) { c.UIDMappings[0].HostID, c.GIDMappings[0].HostID = 0, 0 }, want: []string{"ids of its own"}},
	{name: "no user namespace", config: func(c *configs.Config) {
		without(configs.NEWUSER)(c)
		c.UIDMappings, c.GIDMappings = nil, nil
		c.Sysctl = nil
	}, want: []string{"user namespace of its own", "ids of its own"}},
	{name: "the host's network", config: without(configs.NEWNET), want: append(onANetwork(),
		"net namespace of its own", "loopback of the host", "abstract sockets of the host",
	)},
	{name: "the host's processes", config: without(configs.NEWPID), refused: true},
	{name: "the host's ipc", config: without(configs.NEWIPC), want: []string{"ipc namespace of its own"}},
	{name: "the host's name", config: func(c *configs.Config) { without(configs.NEWUTS)(c); c.Hostname = "" }, want: []string{"uts namespace of its own"}},
	{name: "the host's cgroups", config: without(configs.NEWCGROUP), want: []string{"cgroup namespace of its own"}},
	{name: "the host's uptime", config: without(configs.NEWTIME), want: []string{"time namespace of its own"}},
	{name: "the host's /proc", config: changeMount("/proc", func(m *configs.Mount) {
		*m = configs.Mount{Source: "/proc", Destination: "/proc", Device: "bind", Flags: unix.MS_BIND | unix.MS_REC | noExec}
	}), want: []string{"other processes are hidden"}},
	{name: "no hidepid", config: changeMount("/proc", func(m *configs.Mount) { m.Data = "" }), want: []string{"other processes are hidden"}},
	{name: "no masks", config: func(c *configs.Config) { c.MaskPaths = nil }, want: []string{"masked files of the kernel"}},
	{name: "setuid in /tmp", config: changeMount("/tmp", func(m *configs.Mount) { m.Flags &^= unix.MS_NOSUID }), want: []string{"mounts"}},
	{name: "a writable place", config: addMount(configs.Mount{
		Source: "tmpfs", Destination: "/var", Device: "tmpfs", Flags: withExec, Data: "mode=1777,size=64k",
	}), want: []string{"mounts", "read-only root"}},
	{name: "a directory of the host", config: addMount(configs.Mount{
		Source: "/run", Destination: "/run", Device: "bind", Flags: unix.MS_BIND | unix.MS_REC | unix.MS_RDONLY | noExec,
	}), want: []string{"sockets of the host", "nothing else of the host"}},
	{name: "a directory of the host where the root has one, too", config: addMount(configs.Mount{
		Source: "/var", Destination: "/var", Device: "bind", Flags: unix.MS_BIND | unix.MS_REC | unix.MS_RDONLY | noExec,
	}), want: []string{"nothing else of the host"}},
	{name: "a directory with nothing in it", config: addMount(configs.Mount{
		Source: "tmpfs", Destination: "/skills", Device: "tmpfs", Flags: unix.MS_RDONLY | noExec,
	}), want: []string{"nothing else of the host"}},
	{name: "/sys", config: addMount(configs.Mount{
		Source: "/sys", Destination: "/opt", Device: "bind", Flags: unix.MS_BIND | unix.MS_REC | unix.MS_RDONLY | noExec,
	}), want: []string{"mounts"}},
	{name: "inodes of the host", trees: func(_ *sandbox, l *mount.List) error {
		tree, err := mount.CloneReadOnly("/usr", 0)
		if err != nil {
			return err
		}
		i := slices.Index(l.Targets, "/usr")
		unix.Close(l.Trees[i])
		l.Trees[i] = tree
		return nil
	}, want: []string{"inodes of its own"}},
	{name: "another device", trees: func(c *sandbox, _ *mount.List) error {
		return unix.Mknod(filepath.Join(c.staging.DevicesDir(), "tty"), unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0)))
	}, want: []string{"devices", "files of the host are hidden"}},
	{name: "no bound of /tmp", config: changeMount("/tmp", func(m *configs.Mount) { m.Data = "mode=1777" }), want: []string{"disk limit"}},
	{name: "core dumps", config: func(c *configs.Config) {
		for i := range c.Rlimits {
			if c.Rlimits[i].Type == unix.RLIMIT_CORE {
				c.Rlimits[i].Soft, c.Rlimits[i].Hard = 4096, 4096
			}
		}
	}, want: []string{"resource limits"}},
	{name: "the kernel's choice when memory is short", config: func(c *configs.Config) { c.OomScoreAdj = new(0) }, want: []string{"first to go when memory is short"}},
	{name: "no memory limit", limits: func(c *sandbox) error { return c.group.LimitMemory(muchMemoryForAProbe) }, want: []string{"memory limit"}},
	{name: "no limit of sockets", onlyV1: true, limits: func(c *sandbox) error {
		return c.group.LimitSockets(cgroup.SocketShare * muchInSockets)
	}, want: []string{"socket buffers"}},
	{name: "no process limit", limits: func(c *sandbox) error {
		return os.WriteFile(c.group.File("pids", "pids.max"), []byte("max"), 0)
	}, want: []string{"process limit"}},
}

// muchInSockets is more than the probe's few sockets can hold. muchMemoryForAProbe is more
// memory than the probe takes. Both are in bytes.
const (
	muchInSockets       = 1 << 30
	muchMemoryForAProbe = 1 << 30
)

// TestProbeNamesWhatIsWeak takes one layer after the other off real sandboxes. The probe must
// report each. The probe's attempts do no harm when they succeed.
func TestProbeNamesWhatIsWeak(t *testing.T) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			h := openHost(t)
			if m.onlyV1 && h.cgroups.Unified {
				t.Skip("cgroup v2 has no such layer")
			}
			h.faults = faults{maker: faultyDirect, config: m.config, trees: m.trees, limits: func(*sandbox) error { return nil }}
			if m.limits != nil {
				h.faults.limits = m.limits
			}
			if m.filters != nil {
				h.filters = m.filters(h.filters)
			}
			all, err := h.Probe(t.Context())
			if m.refused {
				if err == nil {
					t.Error("a sandbox could be made")
				}
				t.Log(err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var named []string
			for _, b := range all {
				if !b.Found {
					named = append(named, b.Name)
					t.Logf("%s: %s", b.Name, b.Detail)
				}
			}
			for _, want := range m.want {
				if !slices.Contains(named, want) {
					t.Errorf("%q is found", want)
				}
			}
		})
	}
}
