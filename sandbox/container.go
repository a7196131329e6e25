package sandbox

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/preflight"
)

// Sizes of the mounts whose size is not in the Spec. Their pages are charged to the
// sandbox's memory.
const (
	tmpFiles    = 16384
	shmBytes    = 64 << 20
	shmFiles    = 1024
	tinyOptions = "mode=755,size=64k,nr_inodes=128"
)

// initCapabilities are all that init starts with: SETUID, SETGID and SETPCAP to become
// the script, KILL to end it, and SYS_ADMIN until init has attached the mounts.
var initCapabilities = []string{"CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_ADMIN"}

// maskedPaths of /proc describe the machine or give access to it.
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/bootconfig", "/proc/cgroups", "/proc/cmdline", "/proc/config.gz", "/proc/diskstats",
	"/proc/driver", "/proc/dynamic_debug", "/proc/fs", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/kallsyms",
	"/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags",
	"/proc/latency_stats", "/proc/locks", "/proc/modules", "/proc/pagetypeinfo", "/proc/partitions", "/proc/pressure",
	"/proc/sched_debug", "/proc/schedstat", "/proc/scsi", "/proc/slabinfo", "/proc/softirqs", "/proc/swaps", "/proc/sysvipc",
	"/proc/timer_list", "/proc/timer_stats", "/proc/tty", "/proc/vmallocinfo", "/proc/zoneinfo",
}

// containerConfig is libcontainer's configuration of c: a sandbox without the mounts of an
// execution, as the zygote makes it (pid1/init_cloned.c). Init makes /proc read-only later.
func (c *sandbox) containerConfig() *configs.Config {
	s, g, st := c.spec, c.group, c.staging
	config := newConfig(st.RootDir(), c.ids.mappings())
	config.Capabilities = &configs.Capabilities{Bounding: initCapabilities, Effective: initCapabilities, Permitted: initCapabilities}
	config.Umask = new(uint32(0o077))
	config.MaskPaths = maskedPaths
	config.Rlimits = rlimits(s)
	config.Cgroups = &cgroups.Cgroup{Path: g.Path, Resources: g.Resources(s.Limits.MemoryBytes, max(s.Limits.pids(), firstStageThreads))}
	config.Mounts = mounts(s, st)
	// These limits are per user namespace, so they also bind root of the sandbox.
	config.Sysctl = map[string]string{
		"user.max_user_namespaces":   "0",
		"user.max_net_namespaces":    "0",
		"user.max_inotify_instances": "16",
		"user.max_inotify_watches":   "1024",
	}
	config.Networks = []*configs.Network{{Type: "loopback"}} // brings lo up
	config.Sysctl[sysctlTimeWait] = maxTimeWait
	if hasStampSetting() {
		config.Sysctl[sysctlStamps] = "0"
	}
	return config
}

// newConfig is the part of libcontainer's configuration that sandboxes and the zygote have in
// common.
func newConfig(root string, ids []configs.IDMap) *configs.Config {
	c := &configs.Config{
		Version:         specs.Version,
		Rootfs:          root,
		Readonlyfs:      true,
		RootPropagation: unix.MS_PRIVATE | unix.MS_REC,
		Hostname:        hostname,
		Namespaces:      namespaces(),
		UIDMappings:     ids,
		GIDMappings:     ids,
		NoNewPrivileges: true,      // for all later programs: no_new_privs can't be unset (prctl(2))
		OomScoreAdj:     new(1000), // the kernel ends scripts before services (proc(5))
	}
	if c.Namespaces.Contains(configs.NEWTIME) {
		c.TimeOffsets = hiddenUptime()
	}
	return c
}

// giveAway prepares a container whose user namespace belongs to the user id owner, not to root. It makes
// the user namespace and the time namespace of c, and libcontainer joins them. The caller calls the
// returned func after the start.
//
// The kernel charges some objects of a namespace's users to the namespace's owner, too: instances and watches of
// inotify, pending signals, namespaces (inc_ucount in kernel/ucount.c). With root as the owner, eight scripts could
// use up the 128 inotify instances that all services of the machine share. As the owner each group has its own
// number, and so has each sandbox that libcontainer makes.
//
// An owner has every capability in the namespace, if it is a process of the parent namespace (user_namespaces(7)).
// No process there has this id. The daemon isn't the owner either: it has in the namespace only the capabilities
// that it has itself. So the offsets of clocks, which need CAP_SYS_TIME, are set within the namespace
// (pid1.MakeNamespaces). Without CAP_SYS_RESOURCE only init can set its limits.
func giveAway(c *configs.Config, owner uint32) (done func(), err error) {
	if !c.Namespaces.Contains(configs.NEWUSER) { // a build for tests
		return func() {}, nil
	}
	var offsets strings.Builder
	for clock, o := range c.TimeOffsets {
		fmt.Fprintf(&offsets, "%s %d %d\n", clock, o.Secs, o.Nanosecs)
	}
	n, err := pid1.MakeNamespaces(owner, c.UIDMappings, offsets.String())
	if err != nil {
		return nil, err
	}
	path := func(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
	c.Namespaces.Add(configs.NEWUSER, path(n.User))
	if n.Time != nil {
		c.Namespaces.Add(configs.NEWTIME, path(n.Time))
		c.TimeOffsets = nil
	}
	if !preflight.MayRaiseLimits() {
		c.Rlimits = nil
	}
	return n.Close, nil
}

func namespaces() configs.Namespaces {
	all := configs.Namespaces{
		{Type: configs.NEWUSER}, {Type: configs.NEWNS}, {Type: configs.NEWPID}, {Type: configs.NEWIPC},
		{Type: configs.NEWUTS}, {Type: configs.NEWCGROUP}, {Type: configs.NEWNET},
	}
	if preflight.TimeNamespaces() {
		all = append(all, configs.Namespace{Type: configs.NEWTIME})
	}
	return all
}

// hiddenUptime makes the clocks of a sandbox start near zero, because the uptime helps to
// identify a machine.
func hiddenUptime() map[string]specs.LinuxTimeOffset {
	since := func(clock int32) specs.LinuxTimeOffset {
		var t unix.Timespec
		if unix.ClockGettime(clock, &t) != nil {
			return specs.LinuxTimeOffset{}
		}
		return specs.LinuxTimeOffset{Secs: -t.Sec}
	}
	return map[string]specs.LinuxTimeOffset{"boottime": since(unix.CLOCK_BOOTTIME), "monotonic": since(unix.CLOCK_MONOTONIC)}
}

// firstStageThreads is the least limit of processes with which libcontainer can start: its
// first stage is a Go program with many threads, which count. verify sets the program's limit
// before the program runs.
const firstStageThreads = 64

// Connections in TIME_WAIT are charged to no cgroup, and each takes some 250 bytes for a
// minute. By default a network namespace may have as many as the machine, at most 262,144.
// The kernel ends connections above maxTimeWait at once (tcp(7)). pid1/init_cloned.c has the
// same number.
const (
	sysctlTimeWait = "net.ipv4.tcp_max_tw_buckets"
	maxTimeWait    = "4096"
)

// sysctlStamps set to 0 keeps copies of sent packets out of error queues. Any message can
// ask for such a copy, and no cgroup is charged for it. Older kernels have this setting
// only for the whole machine, and there the daemon does not change it.
const sysctlStamps = "net.core.tstamp_allow_data"

// hasStampSetting reports whether each network namespace has its own sysctlStamps.
var hasStampSetting = sync.OnceValue(func() bool {
	return mount.OnThrowawayThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		_, err := os.Stat("/proc/sys/net/core/tstamp_allow_data")
		return err
	}) == nil
})

// rlimits are the resource limits, which apply in addition to the cgroup's limits.
func rlimits(s Spec) []configs.Rlimit {
	var list []configs.Rlimit
	for resource, value := range wantRlimits(s) {
		if resource == unix.RLIMIT_NOFILE {
			value = max(value, initOpenFiles) // init sets the script's
		}
		list = append(list, configs.Rlimit{Type: resource, Hard: value, Soft: value})
	}
	slices.SortFunc(list, func(a, b configs.Rlimit) int { return a.Type - b.Type })
	return list
}

// initOpenFiles is enough for init to start a pipeline of maxCommands.
const initOpenFiles = 256

// wantRlimits returns the program's resource limits, each both soft and hard, in the units of
// getrlimit(2).
func wantRlimits(s Spec) map[int]uint64 {
	want := map[int]uint64{
		unix.RLIMIT_NOFILE:     uint64(s.Limits.OpenFiles),
		unix.RLIMIT_CORE:       preflight.DumpLimit(),
		unix.RLIMIT_FSIZE:      uint64(s.Workspace.SizeBytes), // no file needs more than the workspace has
		unix.RLIMIT_MEMLOCK:    64 << 10,
		unix.RLIMIT_MSGQUEUE:   0,
		unix.RLIMIT_SIGPENDING: 256,
		unix.RLIMIT_RTPRIO:     0,    // no real-time scheduling
		unix.RLIMIT_NICE:       0,    // no better priority than the default
		unix.RLIMIT_LOCKS:      1024, // the kernel ignores it since Linux 2.4.25
		unix.RLIMIT_STACK:      8 << 20,
	}
	if s.Limits.CPU > 0 {
		// The daemon enforces the limit by the cgroup's counter. RLIMIT_CPU is
		// the fallback: it counts per process, so it ends a program later, and
		// in whole seconds.
		want[unix.RLIMIT_CPU] = uint64(math.Ceil(s.Limits.CPU.Seconds())) + 1
	}
	return want
}

const hostname = "sandbox"

const (
	noExec   = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	withExec = unix.MS_NOSUID | unix.MS_NODEV
)

// mounts lists libcontainer's mounts over the root, in order. The root itself contains
// /usr and the files of /etc. mount_own in pid1/init_cloned.c makes the same mounts.
func mounts(s Spec, st *mount.Staging) []*configs.Mount {
	tmpfs := func(target string, flags int, options string, args ...any) *configs.Mount {
		return &configs.Mount{Source: "tmpfs", Destination: target, Device: "tmpfs", Flags: flags, Data: fmt.Sprintf(options, args...)}
	}
	return []*configs.Mount{
		{Source: "proc", Destination: "/proc", Device: "proc", Flags: noExec, Data: "hidepid=2"},
		// With a mount at /dev libcontainer makes no devices. It would bind the machine's.
		{Source: st.DevicesDir(), Destination: "/dev", Device: "bind", Flags: unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOEXEC},
		tmpfs("/dev/shm", noExec, "mode=1777,size=%d,nr_inodes=%d", shmBytes, shmFiles),
		// /tmp, which is TMPDIR, allows exec: published skills build small
		// programs there. A script gains nothing by it, since it can execute
		// programs in /workspace and run interpreters.
		tmpfs("/tmp", withExec, "mode=1777,size=%d,nr_inodes=%d", s.Workspace.SizeBytes, tmpFiles),
		tmpfs(mount.HomeDir, withExec, "mode=0700,uid=%d,gid=%d,size=%d,nr_inodes=%d", ScriptID, ScriptID, s.Workspace.SizeBytes, tmpFiles),
	}
}

// An idPair is the pair of host ids of one sandbox. No other sandbox has them.
type idPair struct {
	index int    // of the pair, from Config.FirstID on; it names the sandbox's cgroup and directory
	root  uint32 // id of init; the script has the next one
}

func (p idPair) script() uint32 { return p.root + 1 }

func (p idPair) String() string { return "s" + strconv.Itoa(p.index) }

// mappings are the only ids of the sandbox's user namespace. Files of every other owner
// show the overflow id there, and their owner can't be changed (user_namespaces(7)).
func (p idPair) mappings() []configs.IDMap {
	return []configs.IDMap{
		{ContainerID: rootID, HostID: int64(p.root), Size: 1},
		{ContainerID: ScriptID, HostID: int64(p.script()), Size: 1},
	}
}

// initDeadline is when init ends its sandbox, if the daemon is alive but has not ended it.
func initDeadline(l Limits) time.Duration { return l.Wall + l.Grace + initMargin }

// initMargin gives the daemon time to end the program first, with the cause: init only knows that
// its deadline has passed.
const initMargin = 10 * time.Second
