package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/seccomp"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
)

// A Boundary is a feature of this machine that sandboxes need, or a protection that
// was tried inside a sandbox.
type Boundary struct {
	Name   string // never changes, because configurations use it
	Group  string // "machine" for features of the machine; else the kind of protection
	Why    string // its purpose
	Detail string // the finding, or the cause of the failure and the remedy
	Found  bool
}

// A probe tries one boundary. try returns the finding, or an error that says which part
// is missing. how is the remedy.
type probe struct {
	name, why, how string
	try            func(Config) (string, error)
}

// optional are the probes that may fail: sandboxes can be made, with less protection.
var optional = []string{"swap", "core dumps"}

var probes = []probe{
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
	{"socket memory", "the memory of sockets that no cgroup counts is limited", "a kernel with CONFIG_INET_DIAG and CONFIG_INET_UDP_DIAG (modprobe inet_diag tcp_diag udp_diag)", trySocketMemory},
	{"openat2", "the daemon can open a path from a program without leaving a directory", "a kernel of 5.6 or later", tryOpenat2},
	{"id-mapped mounts", "a program owns its files although the daemon does not copy them", "a kernel of 5.12 or later, and a state directory on ext4, xfs or btrfs (since 6.3 also tmpfs), not on overlayfs", tryMapped},
	{"overlay workspace", "a program can write next to files that never change", "a kernel of 5.19 or later with CONFIG_OVERLAY_FS (modprobe overlay)", tryOverlay},
	{"sealed memory files", "no process can write to the binary that starts sandboxes", "a kernel of 3.17 or later", trySeals},
	{"merged /usr", "one read-only mount has all programs of the host", "a distribution on which /bin is a link into /usr (Debian: usrmerge)", tryMergedUsr},
}

// Boundaries probes this machine without opening a Host. Host.Probe tries the
// protections inside a sandbox.
func Boundaries(c Config) []Boundary {
	c = c.withDefaults()
	var all []Boundary
	for _, p := range probes {
		b := Boundary{Name: p.name, Group: "machine", Why: p.why}
		detail, err := p.try(c)
		if err != nil {
			b.Detail = fmt.Sprintf("%v; needs %s", err, p.remedy(err))
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
func (p probe) remedy(err error) string {
	if !errors.Is(err, unix.EPERM) {
		return p.how
	}
	if have, cerr := effectiveCapabilities(); cerr == nil && have&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return "CAP_SYS_ADMIN (see capabilities) and " + p.how
	}
	if ids, cerr := os.ReadFile("/proc/self/uid_map"); cerr == nil && !allIDs(string(ids)) {
		return "no user namespace around the daemon (a rootless container is one) and " + p.how
	}
	return p.how
}

// allIDs says whether a uid_map is the machine's: it maps every id to itself.
func allIDs(uidMap string) bool {
	return slices.Equal(strings.Fields(uidMap), []string{"0", "0", "4294967295"})
}

// Lowerable lists the boundaries that a caller may go without: sandboxes can still be
// made. Without any other boundary no sandbox can be made, or its defects stay unknown.
func Lowerable() []string {
	names := slices.Clone(optional)
	for _, c := range allChecks() {
		if c != checkReport {
			names = append(names, c.name)
		}
	}
	return names
}

// missing returns an error for each boundary that was not found, except for optional ones
// that tolerated names.
func missing(all []Boundary, tolerated []string) (errs []error) {
	for _, b := range all {
		if !b.Found && !(slices.Contains(optional, b.Name) && slices.Contains(tolerated, b.Name)) {
			errs = append(errs, fmt.Errorf("%s is missing (%s): %s", b.Name, b.Why, b.Detail))
		}
	}
	return errs
}

// neededCapabilities maps the numbers of the capabilities that the daemon uses to their
// names.
var neededCapabilities = map[int]string{
	unix.CAP_CHOWN: "CHOWN", unix.CAP_DAC_OVERRIDE: "DAC_OVERRIDE", unix.CAP_FOWNER: "FOWNER", unix.CAP_KILL: "KILL", unix.CAP_MKNOD: "MKNOD",
	unix.CAP_SETGID: "SETGID", unix.CAP_SETUID: "SETUID", unix.CAP_SETPCAP: "SETPCAP", unix.CAP_SYS_ADMIN: "SYS_ADMIN",
	unix.CAP_SYS_PTRACE: "SYS_PTRACE",
}

func tryCapabilities(Config) (string, error) {
	have, err := effectiveCapabilities()
	if err != nil {
		return "", err
	}
	var lacking []string
	for n, name := range neededCapabilities {
		if have&(1<<n) == 0 {
			lacking = append(lacking, name)
		}
	}
	slices.Sort(lacking)
	if os.Geteuid() != 0 || len(lacking) > 0 {
		return "", fmt.Errorf("uid %d without %s", os.Geteuid(), strings.Join(lacking, ", "))
	}
	return "all present", nil
}

func effectiveCapabilities() (uint64, error) {
	status, err := readStatus("self")
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(status.of("CapEff"), 16, 64)
}

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

func tryTime(Config) (string, error) {
	if !hasTimeNamespaces() {
		// Older kernels lack it. Only the uptime is visible then.
		return "this kernel has none: sandboxes see how long the machine has been up", nil
	}
	return tryNamespace(unix.CLONE_NEWTIME)(Config{})
}

// tryProc mounts a proc in new namespaces. The kernel refuses that if other mounts
// cover parts of the machine's /proc (mount_too_revealing in fs/namespace.c).
func tryProc(c Config) (string, error) {
	dir, err := existing(c.RunDir)
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

// compileFilters is a variable for the test of a policy that can't be compiled.
var compileFilters = seccomp.Compile

func trySeccomp(Config) (string, error) {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	if err := seccompActionAvailable(&action); err != nil {
		return "", err
	}
	f, err := compileFilters()
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

func tryCoreDumps(Config) (string, error) {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		return "", err
	}
	return dumpsGoNowhere(string(pattern), crash)
}

// dumpsGoNowhere says whether the RLIMIT_CORE of sandboxes prevents core dumps, given the
// content of core_pattern (core(5)). It prevents dumps to files. It prevents dumps to a
// program if it is noDump, and crash tries that. It doesn't prevent dumps to a socket
// (since Linux 6.16): for these the kernel ignores the limit.
func dumpsGoNowhere(pattern string, crash func() (dumped bool, err error)) (string, error) {
	pattern = strings.TrimSpace(pattern)
	if socket, ok := strings.CutPrefix(pattern, "@"); ok {
		return "", fmt.Errorf("core_pattern sends dumps to a socket, %s, whatever the limits of a sandbox are", strings.TrimPrefix(socket, "@"))
	}
	program, ok := strings.CutPrefix(pattern, "|")
	if !ok {
		return "core_pattern names a file, for which the limit is too small", nil
	}
	program, _, _ = strings.Cut(strings.TrimSpace(program), " ")
	if program == "/bin/false" || program == "/usr/bin/false" {
		return "core_pattern is a pipe to " + program + ", which discards dumps", nil
	}
	dumped, err := crash()
	switch {
	case err != nil:
		return "", fmt.Errorf("core_pattern is a pipe to a program, %s, and the daemon can't test whether a limit of %d byte prevents its start: %w", program, noDump, err)
	case dumped:
		return "", fmt.Errorf("core_pattern is a pipe to a program, %s, and this kernel starts it even with a limit of %d byte", program, noDump)
	}
	return fmt.Sprintf("with the limit of sandboxes, %d byte, a crash doesn't start %s", noDump, program), nil
}

// crash runs a process that dies with the RLIMIT_CORE of sandboxes, and returns whether
// its wait status has the core dump flag (WCOREDUMP, wait(2)).
func crash() (dumped bool, err error) {
	if dumpLimit() != noDump {
		return false, errors.New("the daemon's own hard limit is 0; set LimitCORE=1 in the systemd unit, or --ulimit core=1 for a container")
	}
	ctx, cancel := context.WithTimeout(context.Background(), crashPatience)
	defer cancel()
	// The environment is empty so that a dump of this process holds no secrets.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", pid1.CrashArg)
	cmd.Env = []string{}
	err = cmd.Run()
	if cmd.ProcessState == nil {
		return false, err
	}
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !status.Signaled() || status.Signal() != unix.SIGQUIT {
		return false, fmt.Errorf("the test program did not crash as expected: %v", err)
	}
	return status.CoreDump(), nil
}

// crashPatience bounds the time for one program's start and dump.
const crashPatience = 10 * time.Second

// tryOpenat2 uses a flag that only openat2 has; the kernel refuses unknown flags (openat2(2)).
func tryOpenat2(Config) (string, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return "", err
	}
	return "works", unix.Close(fd)
}

// tryMapped makes an id-mapped clone of the mount that holds StateDir.
func tryMapped(c Config) (string, error) {
	dir, err := existing(c.StateDir)
	if err != nil {
		return "", err
	}
	userns, err := pid1.OpenUserNamespace(c.FirstID)
	if err != nil {
		return "", err
	}
	defer userns.Close()
	return "works on " + dir, mount.OnThrowawayThread(func() error {
		target, err := existing(c.RunDir)
		if err != nil {
			return err
		}
		return mount.BindMapped(dir, target, userns)
	})
}

// tryOverlay mounts a workspace like a sandbox's, in a mount namespace that only one
// thread of this process is in.
func tryOverlay(c Config) (string, error) {
	return "works", mount.OnThrowawayThread(func() error {
		dir, err := existing(c.RunDir)
		if err != nil {
			return err
		}
		lower, err := existing(c.StateDir)
		if err != nil {
			return err
		}
		// Open lower before the tmpfs is mounted, which may cover it: lower may be
		// in dir.
		fd, err := unix.Open(lower, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", lower, err)
		}
		defer unix.Close(fd)
		if err := mount.Tmpfs(dir, "mode=711,size=1m"); err != nil {
			return err
		}
		staging := filepath.Join(dir, "staging")
		if err := os.Mkdir(staging, 0o755); err != nil {
			return err
		}
		userns, err := pid1.OpenUserNamespace(c.FirstID)
		if err != nil {
			return err
		}
		defer userns.Close()
		st, err := mount.NewStaging(staging, mount.Size{Bytes: 1 << 20, Files: 64}, c.FirstID)
		if err != nil {
			return err
		}
		mounts, err := st.Mounts(&mount.Root{}, mount.Execution{Lower: []string{fmt.Sprintf("/proc/self/fd/%d/.", fd)}}, userns)
		mounts.Close()
		if err != nil {
			err = fmt.Errorf("over %s: %w", lower, err)
		}
		return errors.Join(err, st.Close())
	})
}

// existing returns the nearest directory at or above path that exists. Before the first start of
// a daemon its directories are missing; they will be on the file system of that one.
func existing(path string) (string, error) {
	for {
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil || path == "/" {
			return resolved, err
		}
		path = filepath.Dir(path)
	}
}

func trySeals(Config) (string, error) {
	fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	return "work", err
}

func tryMergedUsr(Config) (string, error) {
	target, err := os.Readlink("/bin")
	if err != nil || !strings.HasSuffix(target, "usr/bin") {
		return "", errors.New("/bin is not a link to usr/bin")
	}
	return "/bin is " + target, nil
}
