package sandbox

import (
	"bytes"
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
)

// probeArg is the argument by which init_probe.c recognises that it is to try a
// sandbox. Without init for a parent it means nothing.
const probeArg = "skillrun-probe"

// Bounds of the probe's sandboxes. Small, so that their ends are soon reached.
const (
	probeWall      = 30 * time.Second
	probeMemory    = 64 << 20
	probeProcesses = 8
	probeDisk      = 1 << 20
	probeFiles     = 64
	probeOpenFiles = 64
	maxReport      = 64 << 10
)

// Probe tries in real sandboxes that each boundary holds: it runs a program
// there that attempts what no script may do, uses up memory and processes, and
// looks for what is left. It returns what Open found of the machine and what
// was seen inside. A boundary that was not seen to hold is not found, also if
// the program said nothing of it. The error is that no sandbox can be made; of
// its boundaries those of the machine are returned all the same.
func (h *Host) Probe(ctx context.Context) ([]Boundary, error) {
	p := prober{host: h, name: strings.ToLower(rand.Text())}
	if err := p.listen(); err != nil {
		return h.found, fmt.Errorf("sandbox: probe: %w", err)
	}
	defer p.close()
	var inside, memory, processes []Boundary
	var err error
	var parts sync.WaitGroup
	parts.Go(func() { inside, err = p.inside(ctx) })
	parts.Go(func() { memory = p.memory(ctx) })
	parts.Go(func() { processes = p.processes(ctx) })
	parts.Wait()
	if err != nil {
		return h.found, err
	}
	return inOrder(slices.Concat(h.found, inside, memory, processes)), nil
}

// inOrder puts the boundaries from inside into the order of allChecks, behind
// the machine's.
func inOrder(all []Boundary) []Boundary {
	place := map[string]int{}
	for i, c := range allChecks() {
		place[c.name] = i + 1
	}
	slices.SortStableFunc(all, func(a, b Boundary) int { return place[a.Name] - place[b.Name] })
	return all
}

// A prober is one run of Probe: what it put on the host for sandboxes to find.
type prober struct {
	host      *Host
	name      string
	port      string // on loopback; empty if there is none
	abstract  string
	socket    string
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
}

// spec is the sandbox for one part of the probe.
func (p *prober) spec(part string) Spec {
	return Spec{
		ID:        "probe-" + part + "-" + p.name[:8],
		Program:   Program{{Pipeline: []Command{{Args: []string{"/proc/self/exe", probeArg, part}}}}},
		Workspace: Workspace{SizeBytes: probeDisk, Files: probeFiles},
		Limits:    Limits{Wall: probeWall, MemoryBytes: probeMemory, Processes: probeProcesses, OpenFiles: probeOpenFiles},
	}
}

// env tells the program what it can't know, and what it must not find.
func (p *prober) env(s Spec) ([]string, error) {
	filters, err := ownFilters()
	if err != nil {
		return nil, err
	}
	var limits []string
	for resource, value := range wantRlimits(s) {
		limits = append(limits, fmt.Sprintf("%d=%d", resource, value))
	}
	c := p.host.config
	env := []string{
		fmt.Sprintf("PROBE_FIRST_ID=%d", c.FirstID), fmt.Sprintf("PROBE_IDS=%d", c.IDs), "PROBE_FILTERS=" + filters,
		"PROBE_RLIMITS=" + strings.Join(limits, " "),
		"PROBE_PORT=" + p.port, "PROBE_ABSTRACT=" + p.abstract, "PROBE_SOCKET=" + p.socket,
		"PROBE_FILE=" + filepath.Join(p.host.instance.state, "lock"),
		fmt.Sprintf("PROBE_DISK=%d", s.Workspace.SizeBytes), fmt.Sprintf("PROBE_FILES=%d", s.Workspace.Files),
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

// start runs one part. Its output goes to report.
func (p *prober) start(ctx context.Context, part string, report *report) (*Process, error) {
	s := p.spec(part)
	var err error
	if s.Env, err = p.env(s); err != nil {
		return nil, &SetupError{Step: "probe", Err: err}
	}
	return p.host.Start(ctx, s, IO{Stdout: report})
}

// inside runs the part that tries everything which ends nothing.
func (p *prober) inside(ctx context.Context) ([]Boundary, error) {
	var r report
	process, err := p.start(ctx, "all", &r)
	if err != nil {
		return nil, err
	}
	exit, err := process.Wait()
	found, complaint := parseReport(r.text(), checks)
	if err != nil || exit.End != Exited || exit.Code != 0 {
		complaint = fmt.Sprintf("the probe %s with code %d, signal %d (%v)", exit.End, exit.Code, exit.Signal, err)
	}
	cpu := exit.Usage.UserCPU + exit.Usage.SystemCPU
	return append(found,
		checkReport.boundary(complaint == "", orText(complaint, fmt.Sprintf("%d checks", len(checks)))),
		checkCPU.boundary(cpu > 0, fmt.Sprintf("%v were counted", cpu))), nil
}

// memory runs the part that must not survive.
func (p *prober) memory(ctx context.Context) []Boundary {
	var r report
	process, err := p.start(ctx, "memory", &r)
	if err != nil {
		return []Boundary{checkMemory.boundary(false, err.Error())}
	}
	exit, err := process.Wait()
	detail := fmt.Sprintf("%s, %d processes were killed for memory", exit.End, exit.OOMKills)
	if text := r.text(); len(text) > 0 || err != nil {
		detail = fmt.Sprintf("%s; it said %q (%v)", detail, text, err)
	}
	return []Boundary{checkMemory.boundary(err == nil && exit.End == OOMKilled && exit.OOMKills > 0, detail)}
}

// processes runs the part that forks to its limit and stays; it is stopped, and
// then nothing of it may be there.
func (p *prober) processes(ctx context.Context) []Boundary {
	neither := func(err error) []Boundary {
		return []Boundary{checkProcesses.boundary(false, err.Error()), checkEnd.boundary(false, err.Error())}
	}
	r := report{line: make(chan struct{})}
	process, err := p.start(ctx, "processes", &r)
	if err != nil {
		return neither(err)
	}
	select {
	case <-r.line:
	case <-process.done:
	}
	process.Stop(0)
	exit, err := process.Wait()
	if err != nil {
		return neither(err)
	}
	found, complaint := parseReport(r.text(), []check{checkProcesses})
	limit := found[0]
	if limit.Found && (complaint != "" || exit.PidsMax == 0) {
		limit = checkProcesses.boundary(false, orText(complaint, "the kernel counted no fork that it refused"))
	}
	left := process.cell.group.left()
	return []Boundary{limit, checkEnd.boundary(exit.End == Stopped && left == "", orText(left, exit.End.String()+", its cgroup is gone"))}
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

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
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
	line   chan struct{} // closed with the first whole line, if not nil
}

func (r *report) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buffer.Len()+len(b) > maxReport {
		return 0, io.ErrShortBuffer
	}
	first := !bytes.Contains(r.buffer.Bytes(), []byte("\n"))
	r.buffer.Write(b)
	if first && r.line != nil && bytes.Contains(b, []byte("\n")) {
		close(r.line)
	}
	return len(b), nil
}

func (r *report) text() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.buffer.Bytes())
}
