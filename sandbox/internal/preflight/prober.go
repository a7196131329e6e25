package preflight

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// Command is the probe's program, as a sandbox executes it.
var Command = []string{"/proc/self/exe", pid1.ProbeArg}

// A Prober has the objects on the host that a sandbox must not reach. Several sandboxes may be
// probed at the same time.
type Prober struct {
	Name      string // random: [a-z0-9]{8}
	port      string // on loopback; empty if loopback does not work
	abstract  string
	socket    string
	locked    []*os.File
	listeners []net.Listener
}

// NewProber opens sockets and takes locks that a sandbox must not reach. dir is a directory for a
// socket; other is one with a short path, for the case that dir's is too long. A sandbox must
// see neither. root is where the host's root is mounted. The caller calls Close.
func NewProber(dir, other, root string) (_ *Prober, err error) {
	name := strings.ToLower(rand.Text())
	p := &Prober{Name: name[:8], abstract: "skillrun-probe-" + name}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if err := p.listen(dir, other); err != nil {
		return nil, err
	}
	return p, p.lock(root)
}

// Close closes the sockets and the locks.
func (p *Prober) Close() {
	for _, l := range p.listeners {
		l.Close() // Close removes the socket's file
	}
	for _, f := range p.locked {
		f.Close()
	}
}

// listen makes the sockets that a sandbox must not reach: a TCP port of loopback, an abstract name, and a file in dir,
// or in other if the path in dir is too long.
func (p *Prober) listen(dir, other string) error {
	// If the daemon can't reach a socket either, a sandbox's failure proves nothing. On a
	// machine without loopback that check can't be made, and the report says so.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		p.listeners = append(p.listeners, l)
		if reachable(l) == nil {
			p.port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		}
	}
	p.socket = filepath.Join(dir, "probe-"+p.Name)
	if len(p.socket) > maxSocketPath {
		p.socket = filepath.Join(other, "probe-"+p.Name)
	}
	for _, address := range []string{"@" + p.abstract, p.socket} {
		l, err := net.Listen("unix", address)
		if err != nil {
			return err
		}
		p.listeners = append(p.listeners, l)
		if err := reachable(l); err != nil {
			return err
		}
	}
	return os.Chmod(p.socket, 0o777)
}

// maxSocketPath is the longest path that sun_path holds with its NUL (unix(7)).
const maxSocketPath = 107

// reachable connects to l.
func reachable(l net.Listener) error {
	c, err := net.DialTimeout(l.Addr().Network(), l.Addr().String(), dialPatience)
	if err != nil {
		return err
	}
	return c.Close()
}

// dialPatience bounds a connection to a listener of this process.
const dialPatience = 5 * time.Second

// lockedPaths are the paths of files that sandboxes share with the host or each other.
var lockedPaths = []string{"/", "/etc", "/etc/passwd", "/usr", "/usr/bin", "/dev/null"}

// lock takes shared locks on those files. A sandbox would meet the locks if it had the same
// inodes.
func (p *Prober) lock(root string) error {
	paths := []string{"/usr", "/usr/bin", "/dev/null"}
	for _, path := range lockedPaths {
		if path != "/dev/null" {
			paths = append(paths, root+path)
		}
	}
	for _, path := range paths {
		f, err := pseudofs.Open(path, unix.O_RDONLY)
		if err != nil {
			return err
		}
		p.locked = append(p.locked, f)
		if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil && err != unix.EWOULDBLOCK { // another process has it locked, which serves as well
			return fmt.Errorf("lock %s: %w", path, err)
		}
	}
	return nil
}

// An Expected is the expected state of the sandbox in which the probe runs. The probe uses up its
// disk, memory and processes, so small limits let it end soon.
type Expected struct {
	FirstID, IDs uint32         // ids that /proc shows in the sandbox: of the parent user namespace
	Filters      int            // seccomp filters of the program, the inherited ones included
	Rlimits      map[int]uint64 // both soft and hard, in the units of getrlimit(2)
	Root         []string       // mount.Root.Table
	Points       []string       // mount points; beneath a path that ends in a slash there may be more
	Hidden       string         // a file of the daemon, which a sandbox must not see
	Disk, Files  int64          // bytes and inodes of the workspace
	Sockets      int64          // limit of the memory of sockets, in bytes
	Memory       int64          // limit, in bytes
	Processes    int            // limit
}

// Env returns the environment of the probe's program: the expected state, and the objects that it
// must not reach.
func (p *Prober) Env(want Expected) ([]string, error) {
	commandLine, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	var limits []string
	for resource, value := range want.Rlimits {
		limits = append(limits, fmt.Sprintf("%d=%d", resource, value))
	}
	env := []string{
		fmt.Sprintf("PROBE_FIRST_ID=%d", want.FirstID), fmt.Sprintf("PROBE_IDS=%d", want.IDs), fmt.Sprintf("PROBE_FILTERS=%d", want.Filters),
		"PROBE_RLIMITS=" + strings.Join(limits, " "),
		"PROBE_ROOT=" + strings.Join(want.Root, "\n"),
		"PROBE_LOCKED=" + strings.Join(lockedPaths, "\n"),
		"PROBE_MOUNTS=" + strings.Join(want.Points, "\n"),
		"PROBE_PORT=" + p.port, "PROBE_ABSTRACT=" + p.abstract, "PROBE_SOCKET=" + p.socket,
		"PROBE_FILE=" + want.Hidden,
		fmt.Sprintf("PROBE_DISK=%d", want.Disk), fmt.Sprintf("PROBE_FILES=%d", want.Files),
		fmt.Sprintf("PROBE_SOCKETS=%d", want.Sockets), "PROBE_SOCKETS_UNCOUNTED=" + cgroup.UncountedSockets(string(commandLine)),
		fmt.Sprintf("PROBE_MEMORY=%d", 3*want.Memory), fmt.Sprintf("PROBE_PROCESSES=%d", want.Processes),
	}
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
		link, err := os.Readlink("/proc/self/ns/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			link, err = "none", nil
		}
		if err != nil {
			return nil, err
		}
		env = append(env, "PROBE_NS_"+name+"="+link)
	}
	return env, nil
}
