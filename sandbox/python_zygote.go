package sandbox

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skillrun/skillrun/sandbox/internal/pid1"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/preflight"
	"github.com/skillrun/skillrun/sandbox/internal/pyzygote"
)

const (
	importPatience = 60 * time.Second // for all imports of a Python zygote
	forkPatienceOf = 10 * time.Second // for one child, until it waits
	maxForkPacket  = 64 << 10
	maxBarrierLine = 4 << 10
)

// A Python marks a Program that is one command that starts a Python interpreter. A Host with
// Python zygotes forks the program from a Python zygote that has already imported modules.
type Python struct {
	// Imports are modules of the Python installation that the script will import. If one
	// is not in PythonModules, the program is executed instead of forked. The Python
	// zygote skips modules that it can't import.
	Imports []string
	// Elsewhere reports that the program may search for modules in further directories of
	// the workspace. If one of these has a module with the name of a preimported one, the
	// program is executed instead of forked.
	Elsewhere bool
	// Lines has a forked program's standard output and error pass on whole lines where
	// PYTHONUNBUFFERED=1 passes on each write. Printing then takes half as many system calls. An
	// executed program knows no such setting and does what its environment says.
	Lines bool
}

// PythonModules returns the modules that Python.Imports may name.
func PythonModules() []string { return pyzygote.Modules() }

// pythonKey returns the key of the Python zygote that can fork s's program. The zero key
// means that the program must be executed.
func (s Spec) pythonKey() pyzygote.Key {
	if s.Root != "" || s.Python == nil || len(s.Program) != 1 || len(s.Program[0].Pipeline) != 1 {
		return pyzygote.Key{}
	}
	c := s.Program[0].Pipeline[0]
	env := slices.Sorted(slices.Values(environ(s.Env, c.Env)))
	// The child's command line is JSON, which can hold only valid UTF-8.
	valid := !slices.ContainsFunc(slices.Concat(c.Args, env), func(s string) bool { return !utf8.ValidString(s) })
	if !valid || len(c.Globs)+len(c.Redirects) > 0 {
		return pyzygote.Key{}
	}
	// No key has a program of an execution's mounts.
	return pyzygote.NewKey(c.Args[0], env, s.Python.Imports)
}

// A Python zygote is a Python in the zygote's container that has imported modules and
// forks children into prepared sandboxes. It runs only code of the machine's Python.
type pythonZygote struct {
	socket *os.File
	pidfd  *os.File
	gone   chan struct{} // closed when the Python zygote is gone
	has    pyzygote.Set  // all modules that it has imported

	ask sync.Mutex // one fork at a time

	mu     sync.Mutex
	answer chan forkAnswer
	ended  map[int32]chan int // live children: receives the wait status, by the number of the fork
}

// forkAnswer is a packet of the fork server: of the Python zygote (zygote.py) or of a child
// (barrier.py).
type forkAnswer struct {
	Op       string   `json:"op"`
	By       string   `json:"by"`
	Stage    string   `json:"stage"`
	Errno    int      `json:"errno"`
	Fork     int32    `json:"sandbox"`
	Status   int      `json:"status"`
	Python   string   `json:"python"`
	Imported []string `json:"imported"`
	Failed   []string `json:"failed"`
	Has      []string `json:"has"`
}

func (a forkAnswer) err() error {
	return fmt.Errorf("%s: %w", a.Stage, unix.Errno(a.Errno))
}

// startPythonZygote starts a Python zygote in the zygote's container and waits for its
// imports.
func (m *zygote) startPythonZygote(k pyzygote.Key) (_ *pythonZygote, err error) {
	in := &pythonZygote{gone: make(chan struct{}), answer: make(chan forkAnswer, 1), ended: map[int32]chan int{}}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	defer theirs.Close()
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	in.socket = os.NewFile(uintptr(fds[0]), "Python zygote")
	defer func() {
		if err != nil {
			in.close()
		}
	}()
	logs, log, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go m.host.pythonLog.Copy(logs)
	defer log.Close()
	env := k.Env()
	b := pid1.PacketHeader(pid1.PacketSpawn, 0, 1, uint32(len(env)))
	b = append(append(b, k.Name()...), 0)
	for _, e := range env {
		b = append(append(b, e...), 0)
	}
	pidfd, err := m.ask(b, 0, []int{int(theirs.Fd()), int(log.Fd())})
	if err != nil {
		return nil, err
	}
	pid, err := pidOf(pidfd)
	if err != nil {
		unix.Close(pidfd) // fails if the zygote sent none
		return nil, err
	}
	in.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	// Open copies would hide the end of the Python zygote.
	theirs.Close()
	log.Close()
	filter, err := memoryFile(m.host.filters.Script)
	if err != nil {
		return nil, err
	}
	defer filter.Close()
	go in.listen()
	a, err := in.request(map[string]any{
		"op": "init", "imports": k.Modules(), "filter_bytes": len(m.host.filters.Script), "fast_exit": m.host.config.PythonFastExit,
	}, []int{int(filter.Fd())}, importPatience)
	if err != nil {
		return nil, err
	}
	if a.Op != "ready" {
		return nil, a.err()
	}
	if err := m.host.enforce(func() error { return m.pythonPosture().check(pid) }); err != nil {
		return nil, fmt.Errorf("posture: %w", err)
	}
	in.has = pyzygote.NewSet(a.Has...)
	m.host.log().Debug("Python zygote started", "program", k.Name(), "version", a.Python, "imported", a.Imported, "failed", a.Failed)
	return in, nil
}

// memoryFile returns a memory file (memfd_create(2)) with the content b.
func memoryFile(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "filter")
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// request sends one packet and waits for its answer.
func (in *pythonZygote) request(packet map[string]any, fds []int, patience time.Duration) (forkAnswer, error) {
	b, err := json.Marshal(packet)
	if err != nil {
		return forkAnswer{}, err
	}
	if len(b) > maxForkPacket {
		return forkAnswer{}, fmt.Errorf("request of %d bytes: at most %d", len(b), maxForkPacket)
	}
	if err := sendPacket(in.socket, b, fds); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return forkAnswer{}, fmt.Errorf("Python zygote is gone: %w", err)
	} else if err != nil {
		return forkAnswer{}, err
	}
	select {
	case a := <-in.answer:
		return a, nil
	case <-in.gone:
		return forkAnswer{}, errors.New("Python zygote is gone")
	case <-time.After(patience):
		in.close() // a late answer would pass for the answer to the next request
		return forkAnswer{}, errors.New("Python zygote doesn't answer")
	}
}

// listen receives the Python zygote's packets until the Python zygote is gone.
func (in *pythonZygote) listen() {
	defer func() {
		close(in.gone)
		in.mu.Lock()
		defer in.mu.Unlock()
		for _, status := range in.ended {
			close(status)
		}
		in.ended = nil
	}()
	b := make([]byte, maxForkPacket)
	for {
		n, fds, err := receivePacket(in.socket, b)
		closeAll(fds)
		var a forkAnswer
		if err == nil {
			err = json.Unmarshal(b[:n], &a)
		}
		if err != nil {
			in.socket.Close()
			return
		}
		if a.Op != "ended" {
			select {
			case in.answer <- a:
			default: // an answer without a request
				in.socket.Close()
				return
			}
			continue
		}
		in.mu.Lock()
		if status := in.ended[a.Fork]; status != nil {
			status <- a.Status
			delete(in.ended, a.Fork)
		}
		in.mu.Unlock()
	}
}

// close ends the Python zygote and its children.
func (in *pythonZygote) close() {
	in.socket.Close()
	if in.pidfd != nil {
		_ = unix.PidfdSendSignal(int(in.pidfd.Fd()), unix.SIGKILL, nil, 0)
		in.pidfd.Close()
	}
}

// children counts the children whose end the Python zygote has not reported.
func (in *pythonZygote) children() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.ended)
}

// A space is a namespace that a child enters.
type space struct {
	name string
	flag int
}

// enteredSpaces returns the namespaces that a child enters, in this order: it enters the PID
// namespace by the fork, and the user namespace gives it the right to enter the others.
func enteredSpaces() []space {
	spaces := []space{
		{"pid", unix.CLONE_NEWPID}, {"user", unix.CLONE_NEWUSER}, {"mnt", unix.CLONE_NEWNS}, {"net", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP},
	}
	if preflight.TimeNamespaces() {
		spaces = append(spaces, space{"time", unix.CLONE_NEWTIME})
	}
	return spaces
}

// openSpaces opens the namespaces of init for a child. A Python zygote may not open them:
// the permission that it would need also lets it read init's memory (namespaces(7)).
func openSpaces(pid int) (files []*os.File, flags []int, err error) {
	for _, s := range enteredSpaces() {
		f, err := openNamespace(pid, s.name)
		if err != nil {
			closeFiles(files)
			return nil, nil, err
		}
		files, flags = append(files, f), append(flags, s.flag)
	}
	return files, flags, nil
}

// A forked is a process that a Python zygote forked into a prepared sandbox.
type forked struct {
	barrier *os.File
	lines   *bufio.Reader // of barrier
	ended   chan int      // its wait status; closed if the Python zygote is gone
}

func newForked(barrier *os.File) *forked {
	return &forked{barrier: barrier, lines: bufio.NewReaderSize(barrier, maxBarrierLine), ended: make(chan int, 1)}
}

// fork has the Python zygote fork a child into c. It returns when the child waits for its
// command line.
func (in *pythonZygote) fork(c *sandbox, procsFiles []*os.File) (_ *forked, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	defer theirs.Close()
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		return nil, err
	}
	j := newForked(os.NewFile(uintptr(fds[0]), "barrier"))
	defer func() {
		if err != nil {
			j.barrier.Close()
		}
	}()
	var limits [][3]uint64
	for _, l := range rlimits(c.spec) {
		if l.Type == unix.RLIMIT_NOFILE { // without the descriptors that only init needs
			l.Hard = uint64(c.spec.Limits.OpenFiles)
		}
		limits = append(limits, [3]uint64{uint64(l.Type), l.Hard, l.Hard})
	}
	spaces, flags, err := openSpaces(c.init.pid)
	if err != nil {
		return nil, err
	}
	defer closeFiles(spaces)
	if c.init.ended() { // then another process may have its pid, and spaces are that process's
		return nil, errors.New("init is gone")
	}
	var passed []int
	for _, f := range slices.Concat([]*os.File{theirs}, c.pipes.inside[:], spaces, procsFiles) {
		passed = append(passed, int(f.Fd()))
	}
	if err := in.forkOne(j, passed, limits, flags); err != nil {
		return nil, err
	}
	theirs.Close() // an open copy would hide the child's end
	_ = j.barrier.SetReadDeadline(time.Now().Add(forkPatienceOf))
	a, err := j.line()
	if err == nil && a.Op != "waiting" {
		err = a.err()
	}
	// The child asks for its parent's end (PR_SET_PDEATHSIG) before it waits. If the Python
	// zygote ended before that, the child continues, and its wait status is lost.
	if err == nil && !quiet(in.pidfd) {
		err = errors.New("Python zygote ended before its child waited")
	}
	return j, err
}

// forkOne has the Python zygote fork one child. It returns before the child waits, so the
// next fork can begin.
func (in *pythonZygote) forkOne(j *forked, passed []int, limits [][3]uint64, spaces []int) error {
	in.ask.Lock()
	defer in.ask.Unlock()
	in.mu.Lock()
	if in.ended == nil {
		in.mu.Unlock()
		return errors.New("Python zygote is gone")
	}
	// The number of a fork is random. The slot won't do: another sandbox may get it before
	// the Python zygote reports the end of the last one's process. A counter won't do: the
	// child has a copy of the request, and could guess other numbers.
	sandbox := rand.Int32()
	for in.ended[sandbox] != nil {
		sandbox = rand.Int32()
	}
	in.ended[sandbox] = j.ended
	in.mu.Unlock()
	a, err := in.request(map[string]any{"op": "fork", "sandbox": sandbox, "rlimits": limits, "namespaces": spaces}, passed, forkPatienceOf)
	if err == nil && (a.Op != "forked" || a.Fork != sandbox) {
		err = a.err()
	}
	if err != nil {
		in.mu.Lock()
		delete(in.ended, sandbox)
		in.mu.Unlock()
	}
	return err
}

// line reads the child's next line.
func (j *forked) line() (a forkAnswer, err error) {
	text, err := j.lines.ReadSlice('\n')
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

// run sends the child its command line and returns when the child's program runs, forked or
// executed.
func (j *forked) run(s Spec) error {
	c := s.Program[0].Pipeline[0]
	env := map[string]string{}
	for _, e := range environ(s.Env, c.Env) {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	text, err := json.Marshal(map[string]any{"argv": c.Args, "env": env, "dir": s.Dir, "elsewhere": s.Python.Elsewhere, "lines": s.Python.Lines})
	if err != nil {
		return &SetupError{Step: "program", Err: err}
	}
	if len(text) > maxProgramBytes {
		return &SetupError{Step: "program", Err: fmt.Errorf("%d bytes: at most %d", len(text), maxProgramBytes)}
	}
	_ = j.barrier.SetDeadline(time.Now().Add(startPatience))
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	if _, err := j.barrier.Write(append(b, text...)); err != nil {
		return step("Python zygote", err)
	}
	a, err := j.line()
	if err != nil {
		return step("Python zygote", err)
	}
	if a.Op == "started" && a.By == "exec" {
		// A successful exec closes the barrier. Else the child sends the error.
		if a, err = j.line(); err != nil {
			return nil
		}
	}
	switch {
	case a.Op == "started":
		return nil
	case slices.Contains(pid1.Stages, a.Stage):
		return &SetupError{Step: a.Stage, Err: unix.Errno(a.Errno)}
	}
	return &SetupError{Step: "Python zygote", Err: a.err()}
}
