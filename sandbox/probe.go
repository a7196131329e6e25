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

	"golang.org/x/sys/unix"
)

// probeArg is the argument by which init_probe.c recognises that it is to try a
// sandbox. Without init for a parent it means nothing.
const probeArg = "skillrun-probe"

// Bounds of the probe's sandbox. Small, so that their ends are soon reached.
const (
	probeWall      = 30 * time.Second
	probeMemory    = 64 << 20
	probeProcesses = 8
	probeDisk      = 1 << 20
	probeFiles     = 64
	probeOpenFiles = 64
	maxReport      = 64 << 10
)

// Probe tries in a real sandbox that each boundary holds: it runs a program
// there that attempts what no script may do and then uses up processes and
// memory, and looks for what is left. It returns what Open found of the machine and what
// was seen inside. A boundary that was not seen to hold is not found, also if
// the program said nothing of it. The error is that no sandbox can be made; of
// its boundaries those of the machine are returned all the same.
func (h *Host) Probe(ctx context.Context) ([]Boundary, error) {
	p := prober{host: h, name: strings.ToLower(rand.Text())}
	if err := p.listen(); err != nil {
		return h.found, fmt.Errorf("sandbox: probe: %w", err)
	}
	defer p.close()
	// Whoever makes a sandbox, it has to hold.
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

// both is what holds in each of two sandboxes.
func both(made, prepared []Boundary) []Boundary {
	for i, b := range prepared {
		if i < len(made) && made[i].Found && !b.Found {
			made[i].Found, made[i].Detail = false, "in a sandbox that was prepared: "+b.Detail
		}
	}
	return made
}

// A probed is what is to be expected of the sandboxes of one maker.
type probed struct {
	name  string
	start func(context.Context, Spec, IO) (*Process, error)
	// The ids, as /proc shows them in the sandbox: of its parent user namespace.
	first, ids uint32
	filters    int // of ours
}

func (h *Host) probedDirect() probed {
	return probed{"made", h.startDirect, h.config.FirstID, h.config.IDs, 1}
}

func (h *Host) probedClone() probed {
	return probed{"prepared", h.Start, 2, uint32(2*len(h.ids.used) - 2), 2} // the zygote's two ids are its own
}

// A prober is one run of Probe: what it put on the host for sandboxes to find.
type prober struct {
	host      *Host
	name      string
	port      string // on loopback; empty if there is none
	abstract  string
	socket    string
	locked    []*os.File
	listeners []net.Listener
}

// listen opens what nobody in a sandbox may reach.
func (p *prober) listen() (err error) {
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	// What can't be reached from here says nothing when a sandbox can't either. A
	// machine without loopback has one check that can't be made, and says so.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		p.listeners = append(p.listeners, l)
		if reachable(l) == nil {
			p.port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
		}
	}
	p.abstract = "skillrun-probe-" + p.name
	p.socket = filepath.Join(p.host.instance.run, "probe-"+p.name[:8])
	if len(p.socket) > maxSocketPath {
		p.socket = filepath.Join(idLocks, "probe-"+p.name[:8]) // as little a sandbox's to see
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

// lockedPaths are where a sandbox has files that others have as well.
var lockedPaths = []string{"/", "/etc", "/etc/passwd", "/usr", "/usr/bin", "/dev/null"}

// lock takes shared locks of those files, which a sandbox would meet if they were the
// same to the kernel.
func (p *prober) lock() error {
	paths := []string{"/usr", "/usr/bin", "/dev/null"}
	for _, path := range lockedPaths {
		if path != "/dev/null" {
			paths = append(paths, p.host.rootfs()+path)
		}
	}
	for _, path := range paths {
		f, err := openQuiet(path, unix.O_RDONLY)
		if err != nil {
			return err
		}
		p.locked = append(p.locked, f)
		if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil && err != unix.EWOULDBLOCK { // somebody's; as good
			return fmt.Errorf("lock %s: %w", path, err)
		}
	}
	return nil
}

// maxSocketPath is what sun_path holds with its NUL, unix(7).
const maxSocketPath = 107

// reachable connects to l.
func reachable(l net.Listener) error {
	c, err := net.DialTimeout(l.Addr().Network(), l.Addr().String(), dialPatience)
	if err != nil {
		return err
	}
	return c.Close()
}

// dialPatience bounds a connection to a listener of this very process.
const dialPatience = 5 * time.Second

func (p *prober) close() {
	for _, l := range p.listeners {
		l.Close() // which removes the socket
	}
	closeFiles(p.locked)
}

// spec is the sandbox that is tried.
func (p *prober) spec(of probed) Spec {
	return Spec{
		ID:        "probe-" + of.name + "-" + p.name[:8],
		Program:   Program{{Pipeline: []Command{{Args: []string{"/proc/self/exe", probeArg}}}}},
		Workspace: Workspace{SizeBytes: probeDisk, Files: probeFiles},
		Limits:    Limits{Wall: probeWall, MemoryBytes: probeMemory, Processes: probeProcesses, OpenFiles: probeOpenFiles},
	}
}

// env tells the program what it can't know, and what it must not find.
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
		"PROBE_ROOT=" + strings.Join(rootTable(p.host.config.Links), "\n"),
		"PROBE_LOCKED=" + strings.Join(lockedPaths, "\n"),
		"PROBE_MOUNTS=" + strings.Join(mountPoints(), "\n"),
		"PROBE_PORT=" + p.port, "PROBE_ABSTRACT=" + p.abstract, "PROBE_SOCKET=" + p.socket,
		"PROBE_FILE=" + filepath.Join(p.host.instance.state, "lock"),
		fmt.Sprintf("PROBE_DISK=%d", s.Workspace.SizeBytes), fmt.Sprintf("PROBE_FILES=%d", s.Workspace.Files),
		fmt.Sprintf("PROBE_SOCKETS=%d", p.host.socketBound(s.Limits.MemoryBytes)), "PROBE_SOCKETS_UNCOUNTED=" + uncountedSockets(string(commandLine)),
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

// mountPoints are those of a sandbox without mounts of its own, if they are there.
// Beneath those that end in a slash the machine may have mounted more.
func mountPoints() []string {
	points := []string{"/", "/usr", "/usr/", "/proc", "/dev", "/dev/shm", "/tmp", homeDir, workspaceDir, largeDir, largeDir + "/"}
	return slices.Concat(points, maskedPaths)
}

// run runs the program, which ends by what it takes of memory while others that it
// started would stay, and looks what became of it.
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
		*last = checks[len(said)-1].boundary(false, "the kernel counted no fork that it refused")
	}
	left := process.sandbox.group.left()
	cpu := exit.Usage.UserCPU + exit.Usage.SystemCPU
	return append(said,
		checkMemory.boundary(exit.End == OOMKilled && exit.OOMKills > 0, fmt.Sprintf("%s, %d processes killed for memory", exit.End, exit.OOMKills)),
		checkEnd.boundary(err == nil && left == "", cmp.Or(left, "the processes that would stay, and their cgroup, are gone")),
		checkCPU.boundary(cpu > 0, fmt.Sprintf("%v were counted", cpu)),
		checkReport.boundary(complaint == "", cmp.Or(complaint, fmt.Sprintf("%d checks", len(checks)))),
	), nil
}

// left names a directory of the group that is still there, or "".
func (g group) left() string {
	for _, dir := range g.dirs {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("%s is still there (%v)", dir, err)
		}
	}
	return ""
}

// boundary is what was seen of c.
func (c check) boundary(found bool, detail string) Boundary {
	if !found {
		detail = fmt.Sprintf("%s; needs %s", detail, c.how)
	}
	return Boundary{Name: c.name, Group: c.group, Why: c.why, Detail: detail, Found: found}
}

// parseReport reads what the probe said of want. What is not said exactly once,
// in a whole line, is not found. The complaint is about lines that should not be
// there; empty: none.
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
			complaint = fmt.Sprintf("line %.100q is none of a report", raw)
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
			l.detail = "the probe said nothing of it"
		case 1:
		default:
			l.held, l.detail = false, "the probe said it twice"
		}
		if l.count == 0 && complaint == "" {
			complaint = fmt.Sprintf("nothing was said of %q", c.name)
		}
		found = append(found, c.boundary(l.held, l.detail))
	}
	return found, complaint
}

// A report takes what the probe prints, to a bound.
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
