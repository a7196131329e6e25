package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/cgroup"
	"github.com/skillrun/skillrun/sandbox/internal/mount"
	"github.com/skillrun/skillrun/sandbox/internal/pseudofs"
)

// Limits of the probe's sandbox. They are small, so that the probe reaches them soon.
const (
	probeWall      = 30 * time.Second
	probeMemory    = 64 << 20
	probeProcesses = 8
	probeDisk      = 1 << 20
	probeFiles     = 64
	probeOpenFiles = 64
	maxReport      = 64 << 10
)

// Probe tries in real sandboxes that each boundary holds. It runs a program that attempts
// forbidden actions and then uses up processes and memory. Then it looks for leftovers on
// the host. It returns the machine's boundaries, which Open found, and the boundaries of
// the sandboxes. A boundary that the program did not report is not found. An error means
// that no sandbox can be made; Probe then still returns the machine's boundaries.
func (h *Host) Probe(ctx context.Context) ([]Boundary, error) {
	p := prober{host: h, name: strings.ToLower(rand.Text())}
	if err := p.listen(); err != nil {
		return h.found, fmt.Errorf("sandbox: probe: %w", err)
	}
	defer p.close()
	// A boundary must hold in the sandboxes of both makers.
	var cloned []Boundary
	var clonedErr error
	var tried sync.WaitGroup
	tried.Go(func() {
		if !h.faults.onlyMade() && h.pool.wait(ctx) {
			cloned, clonedErr = p.run(ctx, h.probedClone())
		}
	})
	inside, err := p.run(ctx, h.probedDirect())
	tried.Wait()
	return append(slices.Clone(h.found), both(inside, cloned)...), errors.Join(err, clonedErr)
}

// both returns the boundaries that hold in both sandboxes.
func both(made, prepared []Boundary) []Boundary {
	for i, b := range prepared {
		if i < len(made) && made[i].Found && !b.Found {
			made[i].Found, made[i].Detail = false, "in a sandbox that the zygote made: "+b.Detail
		}
	}
	return made
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
	return probed{"made", h.startDirect, h.config.FirstID, h.config.IDs, 1}
}

func (h *Host) probedClone() probed {
	return probed{"prepared", h.Start, 2, uint32(2*len(h.ids.used) - 2), 2} // the zygote keeps two ids for itself
}

// A prober is one run of Probe, with the objects that it made on the host. A sandbox must not
// reach them.
type prober struct {
	host      *Host
	name      string
	port      string // on loopback; empty if loopback does not work
	abstract  string
	socket    string
	locked    []*os.File
	listeners []net.Listener
}

// listen opens sockets and locks that a sandbox must not reach.
func (p *prober) listen() (err error) {
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	// If the daemon can't reach a socket either, a sandbox's failure proves nothing. On a
	// machine without loopback that check can't be made, and the report says so.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		p.listeners = append(p.listeners, l)
		if reachable(l) == nil {
			p.port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		}
	}
	p.abstract = "skillrun-probe-" + p.name
	p.socket = filepath.Join(p.host.instance.run, "probe-"+p.name[:8])
	if len(p.socket) > maxSocketPath {
		p.socket = filepath.Join(idLocks, "probe-"+p.name[:8]) // a sandbox must not see this directory either
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
	if err := p.lock(); err != nil {
		return err
	}
	return os.Chmod(p.socket, 0o777)
}

// lockedPaths are the paths of files that sandboxes share with the host or each other.
var lockedPaths = []string{"/", "/etc", "/etc/passwd", "/usr", "/usr/bin", "/dev/null"}

// lock takes shared locks on those files. A sandbox would meet the locks if it had the same
// inodes.
func (p *prober) lock() error {
	paths := []string{"/usr", "/usr/bin", "/dev/null"}
	for _, path := range lockedPaths {
		if path != "/dev/null" {
			paths = append(paths, p.host.rootfs()+path)
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

func (p *prober) close() {
	for _, l := range p.listeners {
		l.Close() // Close removes the socket's file
	}
	closeFiles(p.locked)
}

// spec returns the Spec of the probe's sandbox.
func (p *prober) spec(of probed) Spec {
	return Spec{
		ID:        "probe-" + of.name + "-" + p.name[:8],
		Program:   Program{{Pipeline: []Command{{Args: []string{"/proc/self/exe", pid1.ProbeArg}}}}},
		Workspace: Workspace{SizeBytes: probeDisk, Files: probeFiles},
		Limits:    Limits{Wall: probeWall, MemoryBytes: probeMemory, Processes: probeProcesses, OpenFiles: probeOpenFiles},
	}
}

// env returns the program's variables: expected values, and objects that it must not reach.
func (p *prober) env(s Spec, of probed) ([]string, error) {
	filters, err := ownFilters()
	if err != nil {
		return nil, err
	}
	commandLine, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	var limits []string
	for resource, value := range wantRlimits(s) {
		limits = append(limits, fmt.Sprintf("%d=%d", resource, value))
	}
	env := []string{
		fmt.Sprintf("PROBE_FIRST_ID=%d", of.first), fmt.Sprintf("PROBE_IDS=%d", of.ids), fmt.Sprintf("PROBE_FILTERS=%d", filters+of.filters),
		"PROBE_RLIMITS=" + strings.Join(limits, " "),
		"PROBE_ROOT=" + strings.Join(p.host.roots[""].Table, "\n"),
		"PROBE_LOCKED=" + strings.Join(lockedPaths, "\n"),
		"PROBE_MOUNTS=" + strings.Join(mountPoints(), "\n"),
		"PROBE_PORT=" + p.port, "PROBE_ABSTRACT=" + p.abstract, "PROBE_SOCKET=" + p.socket,
		"PROBE_FILE=" + filepath.Join(p.host.instance.state, "lock"),
		fmt.Sprintf("PROBE_DISK=%d", s.Workspace.SizeBytes), fmt.Sprintf("PROBE_FILES=%d", s.Workspace.Files),
		fmt.Sprintf("PROBE_SOCKETS=%d", p.host.cgroups.SocketBound(s.Limits.MemoryBytes)), "PROBE_SOCKETS_UNCOUNTED=" + cgroup.UncountedSockets(string(commandLine)),
		fmt.Sprintf("PROBE_MEMORY=%d", 3*s.Limits.MemoryBytes), fmt.Sprintf("PROBE_PROCESSES=%d", s.Limits.Processes),
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

// mountPoints returns the allowed mount points of a sandbox whose Spec has no mounts.
// Beneath a path that ends in a slash more mount points are allowed.
func mountPoints() []string {
	return slices.Concat(mount.HostPoints(), maskedPaths)
}

// run runs the program and checks how it ended. The program's use of memory ends it, while
// processes that it started would stay.
func (p *prober) run(ctx context.Context, of probed) ([]Boundary, error) {
	s := p.spec(of)
	var err error
	if s.Env, err = p.env(s, of); err != nil {
		return nil, fmt.Errorf("sandbox: probe: %w", err)
	}
	var r report
	process, err := of.start(ctx, s, IO{Stdout: &r})
	if err != nil {
		return nil, err
	}
	exit, err := process.Wait()
	<-process.sandbox.destroyed
	said, complaint := parseReport(r.text(), checks)
	ended := fmt.Sprintf("the probe %s with code %d, signal %d", exit.End, exit.Code, exit.Signal)
	if err != nil {
		complaint = fmt.Sprintf("%s: %v", ended, err)
	} else if complaint != "" {
		complaint += "; " + ended
	}
	last := &said[len(said)-1]
	if last.Found && exit.PidsMax == 0 {
		*last = checks[len(said)-1].boundary(false, "the kernel counted no refused fork")
	}
	left := process.sandbox.group.Left()
	cpu := exit.Usage.UserCPU + exit.Usage.SystemCPU
	return append(said,
		checkMemory.boundary(exit.End == OOMKilled && exit.OOMKills > 0, fmt.Sprintf("%s, %d processes killed for memory", exit.End, exit.OOMKills)),
		checkEnd.boundary(err == nil && left == "", cmp.Or(left, "the processes that the probe left, and their cgroup, are gone")),
		checkCPU.boundary(cpu > 0, fmt.Sprintf("%v counted", cpu)),
		checkReport.boundary(complaint == "", cmp.Or(complaint, fmt.Sprintf("%d checks", len(checks)))),
	), nil
}

// boundary returns the result of c.
func (c check) boundary(found bool, detail string) Boundary {
	if !found {
		detail = fmt.Sprintf("%s; needs %s", detail, c.how)
	}
	return Boundary{Name: c.name, Group: c.group, Why: c.why, Detail: detail, Found: found}
}

// parseReport parses the probe's report about want. A check that the probe did not report
// exactly once, in a whole line, is not found. complaint describes a wrong or missing line,
// or is "".
func parseReport(text []byte, want []check) (found []Boundary, complaint string) {
	type line struct {
		held   bool
		detail string
		count  int
	}
	said := map[string]*line{}
	for _, c := range want {
		said[c.name] = &line{}
	}
	for raw := range bytes.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(string(raw), "\n"), "\t")
		if !bytes.HasSuffix(raw, []byte("\n")) || len(fields) != 3 || fields[1] != "found" && fields[1] != "missing" {
			complaint = fmt.Sprintf("line %.100q is not part of a report", raw)
			continue
		}
		l := said[fields[0]]
		if l == nil {
			complaint = fmt.Sprintf("check %.100q is unknown", fields[0])
			continue
		}
		l.held, l.detail = fields[1] == "found", strings.ToValidUTF8(fields[2], "?")
		if l.count++; l.count > 1 {
			complaint = fmt.Sprintf("check %q was reported %d times", fields[0], l.count)
		}
	}
	for _, c := range want {
		l := said[c.name]
		switch l.count {
		case 0:
			l.detail = "the probe did not report this check"
		case 1:
		default:
			l.held, l.detail = false, "the probe reported this check more than once"
		}
		if l.count == 0 && complaint == "" {
			complaint = fmt.Sprintf("no report of %q", c.name)
		}
		found = append(found, c.boundary(l.held, l.detail))
	}
	return found, complaint
}

// A report collects the probe's output, at most maxReport bytes.
type report struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (r *report) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buffer.Len()+len(b) > maxReport {
		return 0, io.ErrShortBuffer
	}
	return r.buffer.Write(b)
}

func (r *report) text() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.buffer.Bytes())
}
