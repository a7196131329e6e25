package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/wire"
	"github.com/skillrun/skillrun/sandbox"
)

// HelperLimits are the limits of a helper's cgroup. A helper has about ten threads. The most of the
// memory is buffers of connections. The processor weight is half of a tenant's default: scripts cause the helper's
// work, and a full weight would double the tenant's share of busy processors.
var HelperLimits = sandbox.HelperLimits{MemoryBytes: 1 << 30, Processes: 128, CPUWeight: 50}

// environment is all of a helper's environment. The bounds keep one tenant from taking the memory and
// the processors of the others. GOMEMLIMIT leaves a quarter of the cgroup's memory to the kernel's buffers.
// GOMAXPROCS is half of the machine's processors: with both of two, Go wakes and stops threads for most packets, and
// the programs that send and receive have fewer turns.
// GODEBUG keeps Go from holding files of the cgroup open.
var environment = []string{"GOMEMLIMIT=768MiB", fmt.Sprintf("GOMAXPROCS=%d", max(1, min(runtime.NumCPU()/2, 2))), "GOTRACEBACK=single", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}

// A ProgramFile is the helpers' program. The file at its path may be replaced; helpers go on to be of the one that was
// opened.
type ProgramFile struct {
	file   *os.File
	opened os.FileInfo
}

// OpenProgram opens the program at a path.
func OpenProgram(path string) (*ProgramFile, error) {
	file, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	opened, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &ProgramFile{file, opened}, nil
}

// Close ends the use of the program.
func (p *ProgramFile) Close() error { return p.file.Close() }

// unchanged returns an error if something wrote into the file. install(1) and package managers make a new file; cp(1)
// writes into the old one.
func (p *ProgramFile) unchanged() error {
	now, err := p.file.Stat()
	if err == nil && (now.Size() != p.opened.Size() || !now.ModTime().Equal(p.opened.ModTime())) {
		err = fmt.Errorf("%s was written to after the daemon had opened it; let a new daemon take over", Program)
	}
	return err
}

// maxStderr bounds the kept part of a helper's stderr, in bytes.
const maxStderr = 4 << 10

// Program is the name of the helpers' program, which is in the directory of the daemon's.
const Program = wire.Program

var (
	errDied   = errors.New("the network helper died")
	errMemory = errors.New("its memory ran out")
)

// A process is one helper, from the daemon's side.
type process struct {
	command *exec.Cmd
	group   Group
	socket  *wire.Socket
	stderr  *tail
	events  func(wire.Report) // called for each report that is no reply, in order
	answer  time.Duration     // see Config.AnswerTime
	dead    chan struct{}     // closed after its end
	noted   chan struct{}     // closed when the tenant knows it
	memory  bool              // it died because its memory ran out; valid after dead

	trusting sync.Mutex // held while trust sends
	trusts   bool       // the helper has the machine's authorities; guarded by trusting

	mu      sync.Mutex
	number  uint64                      // of the last request
	waiting map[uint64]chan wire.Report // who waits for a reply, by the number of the request
}

// startProcess starts a helper of a tenant and waits until it is confined.
func startProcess(ctx context.Context, t *tenant) (*process, error) {
	c := t.manager.config
	if err := c.Program.unchanged(); err != nil {
		return nil, err
	}
	machine, err := localPorts()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := wire.SocketPair()
	if err != nil {
		return nil, err
	}
	p := &process{socket: ours, stderr: &tail{}, events: t.event, answer: c.AnswerTime,
		dead: make(chan struct{}), noted: make(chan struct{}), waiting: map[uint64]chan wire.Report{}}
	p.command = &exec.Cmd{
		// The descriptor is the program that the daemon found when it started, even if an upgrade has replaced the file.
		Path: fmt.Sprintf("/proc/self/fd/%d", wire.ProgramFD), Args: []string{Program}, Env: environment,
		Dir: c.Dir, ExtraFiles: []*os.File{theirs, c.Program.file}, Stderr: p.stderr,
		// Its own session: a signal of the daemon's terminal is not for it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS},
	}
	err = p.start(t.manager, t.name)
	theirs.Close() // before the first call: while it is open, read does not see the helper's end
	if err != nil {
		ours.File.Close()
		return nil, fmt.Errorf("start the network helper: %w", err)
	}
	go p.read()
	if _, err := p.call(ctx, wire.Request{Kind: wire.Start, Version: c.Version, ID: p.group.ID(), Tenant: &c.Tenant, Ports: portsOf(machine, t.reserve)}, -1); err != nil {
		p.kill()
		<-p.dead
		return nil, errors.Join(err, p.lastWords())
	}
	return p, nil
}

// start starts the process in its cgroup. It does nothing before its first request, so it enters the
// cgroup in time.
func (p *process) start(m *Manager, tenant string) (err error) {
	if p.group, err = m.config.Group(tenant); err != nil {
		return err
	}
	if err = m.start(p.command); err == nil {
		if err = p.group.Enter(p.command.Process.Pid); err != nil {
			p.kill()
			_ = p.command.Wait()
		}
	}
	if err != nil {
		err = errors.Join(err, p.group.Close())
	}
	return err
}

// read handles reports until the helper is gone.
func (p *process) read() {
	for {
		var r wire.Report
		device, err := p.socket.Receive(&r)
		if device != nil { // a helper must not send one
			device.Close()
			fmt.Fprint(p.stderr, "; ended, because it sent a descriptor")
			break
		}
		if err == nil {
			err = r.Check()
		}
		if err != nil {
			// A helper that is killed may leave requests unread: the kernel then resets the socket.
			if !errors.Is(err, os.ErrClosed) && !errors.Is(err, unix.ECONNRESET) {
				fmt.Fprintf(p.stderr, "; ended, because of what it sent: %v", err)
			}
			break
		}
		if r.Kind != wire.Reply {
			p.events(r)
			continue
		}
		p.mu.Lock()
		waiting := p.waiting[r.Number]
		delete(p.waiting, r.Number)
		p.mu.Unlock()
		if waiting != nil {
			// This does not block: the channel has room for one, and each number has at most one reply.
			waiting <- r
		}
	}
	p.kill() // it is of no use without its socket
	_ = p.command.Wait()
	p.buried()
	close(p.dead)
}

// buried looks why the helper died, and removes its cgroup.
func (p *process) buried() {
	p.memory = p.group.OutOfMemory()
	if err := p.group.Close(); err != nil {
		fmt.Fprintf(p.stderr, "; its cgroup stays: %v", err)
	}
}

// call sends a request and waits for the reply. A helper that does not reply is killed.
func (p *process) call(ctx context.Context, r wire.Request, fd int) (wire.Report, error) {
	answer := make(chan wire.Report, 1)
	p.mu.Lock()
	p.number++
	r.Number = p.number
	p.waiting[r.Number] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, r.Number)
	}()
	late := time.NewTimer(p.answer)
	defer late.Stop()
	// The deadline is the same for all callers of send, and each call only moves it on.
	_ = p.socket.File.SetWriteDeadline(time.Now().Add(p.answer))
	if err := p.socket.Send(r, fd); err != nil {
		return wire.Report{}, p.sendError(err)
	}
	select {
	case a := <-answer:
		if a.Error != "" {
			return a, errors.New(text(a.Error))
		}
		return a, nil
	case <-p.dead:
		return wire.Report{}, errDied
	case <-ctx.Done():
		return wire.Report{}, ctx.Err()
	case <-late.C:
		fmt.Fprintf(p.stderr, "; it did not answer in %v", p.answer)
		p.kill()
		return wire.Report{}, fmt.Errorf("%w: it did not answer in %v", errDied, p.answer)
	}
}

// rootsSize bounds the certificates in one packet, in bytes. Base64 needs a third more.
const rootsSize = wire.MaxPacket / 2

// trust sends the machine's authorities, once: the helper can't read files.
func (p *process) trust(ctx context.Context) error {
	p.trusting.Lock()
	defer p.trusting.Unlock()
	if p.trusts {
		return nil
	}
	roots, err := credential.Roots()
	if err != nil {
		return err
	}
	for len(roots) > 0 {
		// At least one certificate in each packet, so that the loop ends even with a certificate larger than
		// rootsSize; send refuses that one.
		n, size := 0, 0
		for n < len(roots) && (n == 0 || size+len(roots[n]) <= rootsSize) {
			size += len(roots[n])
			n++
		}
		if _, err := p.call(ctx, wire.Request{Kind: wire.Trust, Roots: roots[:n]}, -1); err != nil {
			return err
		}
		roots = roots[n:]
	}
	p.trusts = true
	return nil
}

// sendError distinguishes a helper that is gone or does not read from a packet that can't be sent.
func (p *process) sendError(err error) error {
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		p.kill()
		return fmt.Errorf("%w: %w", errDied, err)
	}
	return err
}

func (p *process) kill() { _ = p.command.Process.Kill() }

// end closes the requests, at which the helper exits. It kills a helper that does not exit in time.
func (p *process) end() {
	// The helper reads the end of the requests, and its last reports still come the other way.
	if conn, err := p.socket.File.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
	select {
	case <-p.dead:
	case <-time.After(p.answer):
		p.kill()
		<-p.dead
	}
	p.socket.File.Close()
}

// lastWords returns an error with the helper's exit status and its stderr.
func (p *process) lastWords() error {
	if p.memory {
		return fmt.Errorf("%w: %v", errMemory, p.command.ProcessState)
	}
	text := strings.TrimLeft(strings.TrimSpace(p.stderr.String()), "; ")
	return errors.New(strings.TrimSuffix(fmt.Sprintf("%v: %s", p.command.ProcessState, text), ": "))
}

// A tail keeps the first maxStderr bytes that are written to it. Then it ends the copying: the pipe breaks,
// so a helper can't take the daemon's time with its stderr.
type tail struct {
	mu sync.Mutex
	b  []byte
}

var _ io.Writer = (*tail)(nil)

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(b), maxStderr-len(t.b))
	t.b = append(t.b, b[:n]...)
	if n < len(b) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
