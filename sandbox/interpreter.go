package sandbox

import (
	"bufio"
	_ "embed"
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

	"golang.org/x/sys/unix"
)

// readyProgram is what a ready interpreter runs (ready.py), and readyDir where it is
// in the root file system: a PYTHONPATH of its own.
//
//go:embed ready.py
var readyProgram string

const (
	readyDir       = "/opt/skillrun/ready"
	importPatience = 60 * time.Second // for all the modules of an interpreter
	forkPatienceOf = 10 * time.Second // for one child, up to its waiting
	maxReadyPacket = 64 << 10
	maxGateLine    = 4 << 10
)

// A Python says that a Program is one command that starts a Python. A Host that
// keeps interpreters ready forks it from one that has the modules imported.
type Python struct {
	// Imports are modules of the interpreter's own installation that the script
	// will import, of PythonModules: with others the program is executed. Those that can't
	// be imported are left out.
	Imports []string
	// Elsewhere says that the program may search for modules in directories of the
	// workspace other than at its start. If one of those has a module of the name of
	// one that is imported ahead, it is executed.
	Elsewhere bool
}

// readyKey is which interpreter s could be forked from; zero: none.
func (s Spec) readyKey() readyKey {
	if s.Python == nil || len(s.Program) != 1 || len(s.Program[0].Pipeline) != 1 {
		return readyKey{}
	}
	c := s.Program[0].Pipeline[0]
	env := slices.Sorted(slices.Values(environ(s.Env, c.Env)))
	// The child's command line is JSON, which holds no other bytes.
	valid := !slices.ContainsFunc(slices.Concat(c.Args, env), func(s string) bool { return !utf8.ValidString(s) })
	if !valid || len(c.Globs)+len(c.Redirects) > 0 {
		return readyKey{}
	}
	// A program that a mount of the execution brings is none of zygotePrograms.
	return newReadyKey(c.Args[0], env, s.Python.Imports)
}

// An interpreter is a Python in the mother's container that has imported modules and
// forks children into prepared sandboxes. It runs nothing but its own installation.
type interpreter struct {
	socket *os.File
	pidfd  *os.File
	gone   chan struct{} // closed when it is
	has    modules       // of zygoteModules, those that it has imported

	ask sync.Mutex // one fork at a time

	mu     sync.Mutex
	answer chan readyAnswer
	ended  map[int32]chan int // wait status by the number of a fork, of those that live
}

// readyAnswer is a packet of ready.py; see there.
type readyAnswer struct {
	Op       string   `json:"op"`
	By       string   `json:"by"`
	Stage    string   `json:"stage"`
	Errno    int      `json:"errno"`
	Cell     int32    `json:"cell"`
	Status   int      `json:"status"`
	Python   string   `json:"python"`
	Imported []string `json:"imported"`
	Failed   []string `json:"failed"`
	Has      []string `json:"has"`
}

func (a readyAnswer) err() error {
	return fmt.Errorf("%s: %w", a.Stage, unix.Errno(a.Errno))
}

// startInterpreter starts one beside the mother and waits for its imports.
func (m *mother) startInterpreter(k readyKey) (_ *interpreter, err error) {
	in := &interpreter{gone: make(chan struct{}), answer: make(chan readyAnswer, 1), ended: map[int32]chan int{}}
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
	in.socket = os.NewFile(uintptr(fds[0]), "interpreter")
	defer func() {
		if err != nil {
			in.close()
		}
	}()
	logs, log, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go m.host.logLines(logs)
	defer log.Close()
	env := k.env()
	b := packetHeader(packetSpawn, 0, 1, uint32(len(env)))
	b = append(append(b, k.name()...), 0)
	for _, e := range env {
		b = append(append(b, e...), 0)
	}
	pidfd, err := m.ask(b, 0, []int{int(theirs.Fd()), int(log.Fd())})
	if err != nil {
		return nil, err
	}
	// Kept open here they would hide that the interpreter is gone.
	theirs.Close()
	log.Close()
	in.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	filter, err := memoryFile(m.host.filters.script)
	if err != nil {
		return nil, err
	}
	defer filter.Close()
	go in.listen()
	a, err := in.request(map[string]any{
		"op": "init", "imports": k.modules(), "filter_bytes": len(m.host.filters.script),
	}, []int{int(filter.Fd())}, importPatience)
	if err != nil {
		return nil, err
	}
	if a.Op != "ready" {
		return nil, a.err()
	}
	pid, err := pidOf(pidfd)
	if err != nil {
		return nil, err
	}
	if err := m.host.heed(func() error { return m.pythonPosture().check(pid) }); err != nil {
		return nil, fmt.Errorf("posture: %w", err)
	}
	in.has = moduleSet(a.Has)
	m.host.log().Debug("interpreter is ready", "program", k.name(), "version", a.Python, "imported", a.Imported, "failed", a.Failed)
	return in, nil
}

// memoryFile is a file that holds b and has no name.
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

// logLines logs what an interpreter prints: what went wrong in it.
func (h *Host) logLines(r *os.File) {
	defer r.Close()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		h.log().Warn("interpreter", "line", lines.Text())
	}
}

// request sends one packet and waits for its answer.
func (in *interpreter) request(packet map[string]any, fds []int, patience time.Duration) (readyAnswer, error) {
	b, err := json.Marshal(packet)
	if err != nil {
		return readyAnswer{}, err
	}
	if len(b) > maxReadyPacket {
		return readyAnswer{}, fmt.Errorf("request of %d bytes: at most %d", len(b), maxReadyPacket)
	}
	if err := sendPacket(in.socket, b, fds); errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return readyAnswer{}, fmt.Errorf("interpreter is gone: %w", err)
	} else if err != nil {
		return readyAnswer{}, err
	}
	select {
	case a := <-in.answer:
		return a, nil
	case <-in.gone:
		return readyAnswer{}, errors.New("interpreter is gone")
	case <-time.After(patience):
		in.close() // what it says later belongs to nothing
		return readyAnswer{}, errors.New("interpreter doesn't answer")
	}
}

// listen takes what the interpreter says until it is gone.
func (in *interpreter) listen() {
	defer func() {
		close(in.gone)
		in.mu.Lock()
		defer in.mu.Unlock()
		for _, status := range in.ended {
			close(status)
		}
		in.ended = nil
	}()
	b := make([]byte, maxReadyPacket)
	for {
		n, fds, err := receivePacket(in.socket, b)
		closeAll(fds)
		var a readyAnswer
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
			default: // to nobody's question
				in.socket.Close()
				return
			}
			continue
		}
		in.mu.Lock()
		if status := in.ended[a.Cell]; status != nil {
			status <- a.Status
			delete(in.ended, a.Cell)
		}
		in.mu.Unlock()
	}
}

// close ends the interpreter and its children.
func (in *interpreter) close() {
	in.socket.Close()
	if in.pidfd != nil {
		_ = unix.PidfdSendSignal(int(in.pidfd.Fd()), unix.SIGKILL, nil, 0)
		in.pidfd.Close()
	}
}

// children counts its children that live, as far as it has told.
func (in *interpreter) children() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.ended)
}

// A space is a namespace that a child enters.
type space struct {
	name string
	flag int
}

// joinedSpaces are those that a child enters, in this order: the PID namespace comes with
// the fork, and the user namespace gives it the right to enter the others.
func joinedSpaces() []space {
	spaces := []space{
		{"pid", unix.CLONE_NEWPID}, {"user", unix.CLONE_NEWUSER}, {"mnt", unix.CLONE_NEWNS}, {"net", unix.CLONE_NEWNET},
		{"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP},
	}
	if hasTimeNamespaces() {
		spaces = append(spaces, space{"time", unix.CLONE_NEWTIME})
	}
	return spaces
}

// openSpaces opens the namespaces of a process that children enter. A Python zygote does
// not have the right to: it would be that to read init's memory.
func openSpaces(pid int) (files []*os.File, flags []int, err error) {
	for _, s := range joinedSpaces() {
		f, err := openNamespace(pid, s.name)
		if err != nil {
			closeFiles(files)
			return nil, nil, err
		}
		files, flags = append(files, f), append(flags, s.flag)
	}
	return files, flags, nil
}

// A joined is a process that an interpreter forked into a prepared sandbox.
type joined struct {
	gate  *os.File
	lines *bufio.Reader // of gate
	ended chan int      // its wait status; closed if nobody knows it
}

func newJoined(gate *os.File) *joined {
	return &joined{gate: gate, lines: bufio.NewReaderSize(gate, maxGateLine), ended: make(chan int, 1)}
}

// fork has a child join c, and returns when it waits for its command line.
func (in *interpreter) fork(c *cell, doors []*os.File) (_ *joined, err error) {
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
	j := newJoined(os.NewFile(uintptr(fds[0]), "gate"))
	defer func() {
		if err != nil {
			j.gate.Close()
		}
	}()
	var limits [][3]uint64
	for _, l := range rlimits(c.spec) {
		if l.Type == unix.RLIMIT_NOFILE { // without what init needs
			l.Hard = uint64(c.spec.Limits.OpenFiles)
		}
		limits = append(limits, [3]uint64{uint64(l.Type), l.Hard, l.Hard})
	}
	spaces, flags, err := openSpaces(c.born.pid)
	if err != nil {
		return nil, err
	}
	defer closeFiles(spaces)
	if c.born.ended() { // they may be another process's, which has its number by now
		return nil, errors.New("init is gone")
	}
	var passed []int
	for _, f := range slices.Concat([]*os.File{theirs}, c.pipes.inside[:], spaces, doors) {
		passed = append(passed, int(f.Fd()))
	}
	if err := in.forkOne(j, passed, limits, flags); err != nil {
		return nil, err
	}
	theirs.Close() // kept open here it would hide that the child is gone
	_ = j.gate.SetReadDeadline(time.Now().Add(forkPatienceOf))
	a, err := j.line()
	if err == nil && a.Op != "waiting" {
		err = a.err()
	}
	return j, err
}

// forkOne has it fork once. The child then goes its way by itself, while the next one is
// forked.
func (in *interpreter) forkOne(j *joined, passed []int, limits [][3]uint64, spaces []int) error {
	in.ask.Lock()
	defer in.ask.Unlock()
	in.mu.Lock()
	if in.ended == nil {
		in.mu.Unlock()
		return errors.New("interpreter is gone")
	}
	// Not the slot, which another sandbox may have before the interpreter has said that
	// the last one's process ended. Nor a count: the child has a copy of the request.
	cell := rand.Int32()
	for in.ended[cell] != nil {
		cell = rand.Int32()
	}
	in.ended[cell] = j.ended
	in.mu.Unlock()
	a, err := in.request(map[string]any{"op": "fork", "cell": cell, "rlimits": limits, "namespaces": spaces}, passed, forkPatienceOf)
	if err == nil && (a.Op != "forked" || a.Cell != cell) {
		err = a.err()
	}
	if err != nil {
		in.mu.Lock()
		delete(in.ended, cell)
		in.mu.Unlock()
	}
	return err
}

// line takes what the child says next.
func (j *joined) line() (a readyAnswer, err error) {
	text, err := j.lines.ReadSlice('\n')
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

// run gives the child its command line and returns when it runs. The interpreter's
// own main does, or the program that it executed.
func (j *joined) run(s Spec) error {
	c := s.Program[0].Pipeline[0]
	env := map[string]string{}
	for _, e := range environ(s.Env, c.Env) {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	text, err := json.Marshal(map[string]any{"argv": c.Args, "env": env, "dir": s.Dir, "elsewhere": s.Python.Elsewhere})
	if err != nil {
		return &SetupError{Step: "program", Err: err}
	}
	if len(text) > maxProgramBytes {
		return &SetupError{Step: "program", Err: fmt.Errorf("%d bytes: at most %d", len(text), maxProgramBytes)}
	}
	_ = j.gate.SetDeadline(time.Now().Add(startPatience))
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	if _, err := j.gate.Write(append(b, text...)); err != nil {
		return step("interpreter", err)
	}
	a, err := j.line()
	if err != nil {
		return step("interpreter", err)
	}
	if a.Op == "started" && a.By == "exec" {
		// It closes the gate, or says why not.
		if a, err = j.line(); err != nil {
			return nil
		}
	}
	switch {
	case a.Op == "started":
		return nil
	case slices.Contains(stages, a.Stage):
		return &SetupError{Step: a.Stage, Err: unix.Errno(a.Errno)}
	}
	return &SetupError{Step: "interpreter", Err: a.err()}
}
