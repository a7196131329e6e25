package preflight

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
)

// A feature is one boundary of the machine. try returns the finding, or an error that says which
// part is missing. how is the remedy.
type feature struct {
	name, why, how string
	try            func(Config) (string, error)
}

// optional are the features that may be missing: sandboxes can be made, with less protection.
var optional = []string{"swap", "core dumps"}

var features = []feature{
	{"capabilities", "the daemon needs them to make namespaces and mounts and to change ids", "root with these capabilities, as a systemd service has them; a container needs --privileged, or these capabilities and a security profile that lets them work", tryCapabilities},
	{"ids", "each sandbox has two ids of the host that no other sandbox uses", "ids.first and ids.count with a range that this user namespace maps, or no user namespace around the daemon", tryIDs},
	{"user namespace", "root inside a sandbox has no rights outside", "a kernel with CONFIG_USER_NS and user.max_user_namespaces above 0", tryNamespace(unix.CLONE_NEWUSER)},
	{"mount namespace", "each sandbox has its own file tree", "a kernel with namespaces", tryNamespace(unix.CLONE_NEWNS)},
	{"pid namespace", "a sandbox sees no process outside, and its processes end with its init", "a kernel with CONFIG_PID_NS", tryNamespace(unix.CLONE_NEWPID)},
	{"network namespace", "a sandbox has its own loopback and no other network", "a kernel with CONFIG_NET_NS", tryNamespace(unix.CLONE_NEWNET)},
	{"ipc namespace", "sandboxes share no System V IPC and no message queues", "a kernel with CONFIG_IPC_NS", tryNamespace(unix.CLONE_NEWIPC)},
	{"uts namespace", "each sandbox has its own host name", "a kernel with CONFIG_UTS_NS", tryNamespace(unix.CLONE_NEWUTS)},
	{"cgroup namespace", "a sandbox does not see the cgroups of the machine", "a kernel of 4.6 or later", tryNamespace(unix.CLONE_NEWCGROUP)},
	{"time namespace", "a sandbox does not see how long the machine has been up", "a kernel of 5.6 or later with CONFIG_TIME_NS", tryTime},
	{"proc", "a sandbox sees only its own processes", "a /proc without mounts over parts of it (under systemd neither ProtectKernelTunables nor ProtectProc; in a container, unmasked paths)", tryProc},
	{"cgroups", "memory, processes and CPU are limited, and every process of a sandbox can be killed", "Delegate=yes in the systemd service, or cgroup_parent with the name of an existing cgroup without processes", tryCgroups},
	{"swap", "the memory limit also bounds swap", "a kernel with swapaccount=1, or no swap (swapoff -a)", trySwap},
	{"seccomp", "a script reaches only the listed system calls", "a kernel with CONFIG_SECCOMP_FILTER, and libseccomp", trySeccomp},
	{"core dumps", "a crash in a sandbox gives its memory to no program and no socket", "a kernel.core_pattern that names a file (sysctl kernel.core_pattern=core)", tryCoreDumps},
	{"socket memory", "the memory of sockets that no cgroup counts is limited", "a kernel with CONFIG_INET_DIAG and CONFIG_INET_UDP_DIAG (modprobe inet_diag tcp_diag udp_diag)", func(c Config) (string, error) { return c.Sockets() }},
	{"openat2", "the daemon can open a path from a program without leaving a directory", "a kernel of 5.6 or later", tryOpenat2},
	{"id-mapped mounts", "a program owns its files although the daemon does not copy them", "a kernel of 5.12 or later, and a state directory on ext4, xfs or btrfs (since 6.3 also tmpfs), not on overlayfs", tryMapped},
	{"overlay workspace", "a program can write next to files that never change", "a kernel of 5.19 or later with CONFIG_OVERLAY_FS (modprobe overlay)", tryOverlay},
	{"sealed memory files", "no process can write to the binary that starts sandboxes", "a kernel of 3.17 or later", trySeals},
	{networkDevice, "a sandbox with a network has one interface, whose packets the daemon's helper carries", "a kernel with CONFIG_TUN, CONFIG_INET_DIAG_DESTROY and /dev/net/tun (modprobe tun); with a DevicePolicy in the systemd service also DeviceAllow=/dev/net/tun rw, in a container --device /dev/net/tun; or network: none for the daemon and its tenants", func(c Config) (string, error) { return "works", c.Network() }},
	{"merged /usr", "one read-only mount has all programs of the host", "a distribution on which /bin is a link into /usr (Debian: usrmerge)", tryMergedUsr},
}

// networkDevice is tried only for a daemon whose sandboxes may have a network.
const networkDevice = "network device"

// A Config has the settings of a daemon that the tries depend on. All fields but CgroupParent and
// Network are required.
type Config struct {
	StateDir, RunDir string // need not exist
	CgroupParent     string // "" is this process's cgroup
	FirstID, IDs     uint32 // the first and the number of ids of the host for sandboxes
	// Filters compiles the filters of sandboxes.
	Filters func() (seccomp.Filters, error)
	// Sockets returns a finding if the memory of sockets can be measured.
	Sockets func() (string, error)
	// Network returns an error if no interface of a sandbox can be made. nil: no sandbox has one.
	Network func() error
}

// Machine tries each feature of the machine that sandboxes need.
func Machine(c Config) []Boundary {
	var all []Boundary
	for _, f := range features {
		if f.name == networkDevice && c.Network == nil {
			continue
		}
		b := Boundary{Name: f.name, Group: "machine", Why: f.why}
		detail, err := f.try(c)
		if err != nil {
			b.Detail = fmt.Sprintf("%v; needs %s", err, f.remedy(err))
		} else {
			b.Detail, b.Found = detail, true
		}
		all = append(all, b)
	}
	return all
}

// remedy returns the remedy for err. If the kernel refused for lack of permission, the
// remedy names that permission first. Capabilities in a user namespace other than the
// machine's don't help there: they don't apply to the machine (user_namespaces(7)).
func (f feature) remedy(err error) string {
	if !errors.Is(err, unix.EPERM) {
		return f.how
	}
	if have, cerr := effectiveCapabilities(); cerr == nil && have&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return "CAP_SYS_ADMIN (see capabilities) and " + f.how
	}
	if ids, cerr := os.ReadFile("/proc/self/uid_map"); cerr == nil && !allIDs(string(ids)) {
		return "no user namespace around the daemon (a rootless container is one) and " + f.how
	}
	return f.how
}

// allIDs says whether a uid_map is the machine's: it maps every id to itself.
func allIDs(uidMap string) bool {
	return slices.Equal(strings.Fields(uidMap), []string{"0", "0", "4294967295"})
}

// neededCapabilities maps the numbers of the capabilities that the daemon uses to their
// names.
var neededCapabilities = map[int]string{
	unix.CAP_CHOWN: "CHOWN", unix.CAP_DAC_OVERRIDE: "DAC_OVERRIDE", unix.CAP_FOWNER: "FOWNER", unix.CAP_KILL: "KILL", unix.CAP_MKNOD: "MKNOD",
	unix.CAP_SETGID: "SETGID", unix.CAP_SETUID: "SETUID", unix.CAP_SETPCAP: "SETPCAP", unix.CAP_SYS_ADMIN: "SYS_ADMIN",
	unix.CAP_SYS_PTRACE: "SYS_PTRACE",
}

// tryCapabilities wants uid 0 as well, to which the daemon's files belong.
func tryCapabilities(Config) (string, error) {
	have, err := effectiveCapabilities()
	if err != nil {
		return "", err
	}
	var missing []string
	for n, name := range neededCapabilities {
		if have&(1<<n) == 0 {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	if os.Geteuid() != 0 || len(missing) > 0 {
		return "", fmt.Errorf("uid %d without %s", os.Geteuid(), strings.Join(missing, ", "))
	}
	return "all present", nil
}

// effectiveCapabilities returns a set of bits by the numbers of the capabilities. The file shows it
// in hexadecimal (CapEff, proc(5)).
func effectiveCapabilities() (uint64, error) {
	status, err := pseudofs.Read("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(status, "\nCapEff:")
	value, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseUint(strings.TrimSpace(value), 16, 64)
}

// tryIDs looks for the ids of sandboxes in this process's user namespace: a new user namespace can
// map only ids that exist in its parent. A line of the files has the first id inside, the first id
// outside and the count (user_namespaces(7)).
func tryIDs(c Config) (string, error) {
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		var mapped bool
		for line := range strings.Lines(string(b)) {
			var inside, outside, count uint64
			if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
				return "", err
			}
			mapped = mapped || inside <= uint64(c.FirstID) && uint64(c.FirstID)+uint64(c.IDs) <= inside+count
		}
		if !mapped {
			return "", fmt.Errorf("ids %d to %d are not in %s", c.FirstID, uint64(c.FirstID)+uint64(c.IDs)-1, file)
		}
	}
	return fmt.Sprintf("%d to %d", c.FirstID, uint64(c.FirstID)+uint64(c.IDs)-1), nil
}

// tryNamespace makes a namespace in a child, so that the daemon's threads keep theirs.
func tryNamespace(flag int) func(Config) (string, error) {
	return func(Config) (string, error) {
		if err := pid1.TryUnshare(flag); err != nil {
			return "", fmt.Errorf("unshare: %w", err)
		}
		return "works", nil
	}
}

// TimeNamespaces reports whether the kernel has time namespaces (since Linux 5.6).
var TimeNamespaces = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/self/timens_offsets")
	return err == nil
})

// tryTime passes without time namespaces: sandboxes can be made, with less hidden.
func tryTime(Config) (string, error) {
	if !TimeNamespaces() {
		// Older kernels lack it. Only the uptime is visible then.
		return "this kernel has none: sandboxes see how long the machine has been up", nil
	}
	return tryNamespace(unix.CLONE_NEWTIME)(Config{})
}

// tryProc mounts a proc in new namespaces. The kernel refuses that if other mounts
// cover parts of the machine's /proc (mount_too_revealing in fs/namespace.c).
func tryProc(c Config) (string, error) {
	dir, err := Existing(c.RunDir)
	if err != nil {
		return "", err
	}
	return "works", pid1.TryMountProc(dir)
}

// tryCgroups makes a cgroup and removes it, since a directory that exists proves nothing about
// the permission to make cgroups.
func tryCgroups(c Config) (string, error) {
	h, err := cgroup.Open(c.CgroupParent)
	if err != nil {
		return "", err
	}
	return h.Try()
}

// trySwap passes on a machine without swap, where the memory limit needs no limit of swap. The
// first line of /proc/swaps is its heading (proc(5)).
func trySwap(c Config) (string, error) {
	h, err := cgroup.Open(c.CgroupParent)
	if err != nil {
		return "", err
	}
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil || strings.Count(string(swaps), "\n") <= 1 {
		return "the machine has no swap", nil
	}
	return h.TrySwap()
}

// trySeccomp asks for filters that refuse a call with an error, and compiles the filters. It loads
// none: a filter can't be removed from a thread (seccomp(2)).
func trySeccomp(c Config) (string, error) {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	if err := seccompActionAvailable(&action); err != nil {
		return "", err
	}
	f, err := c.Filters()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("a filter of %d instructions", len(f.Script)/seccomp.InstructionSize), nil
}

// seccompActionAvailable returns an error if the kernel's filters don't support action
// (SECCOMP_GET_ACTION_AVAIL, seccomp(2)).
func seccompActionAvailable(action *uint32) error {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(action)))
	if errno != 0 {
		return errno
	}
	return nil
}
