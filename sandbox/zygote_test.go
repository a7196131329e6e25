package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/preflight"
)

// waitForBucket returns when n sandboxes wait in the bucket of s.
func waitForBucket(t *testing.T, h *Host, s Spec, n int) []*sandbox {
	t.Helper()
	var ready []*sandbox
	if err := eventually(func() error {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		f := h.pool.buckets[s.withDefaults().profile()]
		if f == nil || len(f.waiting) < n {
			return fmt.Errorf("fewer than %d sandboxes wait", n)
		}
		ready = append([]*sandbox(nil), f.waiting...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return ready
}

// prewarm asks for s until n sandboxes wait for it.
func prewarm(t *testing.T, h *Host, s Spec, n int) []*sandbox {
	t.Helper()
	key := s.withDefaults().profile()
	run(t, h, s, "")
	h.pool.mu.Lock()
	h.pool.buckets[key].want = n // as if so many had been asked for at once
	h.pool.mu.Unlock()
	h.pool.wakeUp()
	return waitForBucket(t, h, s, n)
}

// held starts a program that says "ready" and then waits for its input to end.
type held struct {
	p   *Process
	in  *io.PipeWriter
	out *bytes.Buffer
}

func hold(t *testing.T, h *Host, s Spec) *held {
	t.Helper()
	s.ID = fmt.Sprintf("held%d", testIDs.Add(1))
	s.Program, s.Env = bash("echo ready; cat; echo done"), testEnv
	s.Limits.Wall = patientWall(s.Limits.Wall)
	r, w := io.Pipe()
	ready := make(chan struct{})
	k := &held{in: w, out: &bytes.Buffer{}}
	p, err := h.Start(t.Context(), s, IO{Stdin: r, Stdout: &firstWrite{to: k.out, done: ready}})
	if err != nil {
		t.Fatal(err)
	}
	k.p = p
	select {
	case <-ready:
	case <-time.After(time.Minute):
		t.Fatal("it says nothing")
	}
	return k
}

// firstWrite closes done at the first write.
type firstWrite struct {
	to   io.Writer
	done chan struct{}
	once sync.Once
}

func (f *firstWrite) Write(b []byte) (int, error) {
	f.once.Do(func() { close(f.done) })
	return f.to.Write(b)
}

// end lets the program end, and checks that it succeeded.
func (k *held) end(t *testing.T) {
	t.Helper()
	k.in.Close()
	if exit, err := k.p.Wait(); err != nil || exit.End != Exited || exit.Code != 0 || k.out.String() != "ready\ndone\n" {
		t.Errorf("got %+v, %v, %q, want that it ended well", exit, err, k.out)
	}
}

// attack runs in a sandbox and prints each attack that succeeded.
const attack = `
import ctypes, errno, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def bad(what): print(what)
fds = sorted(int(f) for f in os.listdir('/proc/self/fd'))
for f in fds:
    if f > 2:
        try: bad('descriptor %d: %s' % (f, os.readlink('/proc/self/fd/%d' % f)))
        except OSError: pass  # the listing's own
for line in open('/proc/self/maps'):
    part = line.split(None, 5)
    if part[1][3] == 's' and ('w' in part[1] or not part[5:] or '/usr/' not in part[5]): bad('shared memory: ' + line.strip())
def refused(what, call, *errors):
    try: r = call()
    except OSError as e:
        if e.errno not in errors: bad('%s: %s' % (what, e))
    else: bad('%s: %r' % (what, r))
for s in (0, signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
    refused('kill init %d' % s, lambda: os.kill(1, s), errno.EPERM, errno.ESRCH)
def call(*args):
    r = libc.syscall(*args)
    if r < 0: raise OSError(ctypes.get_errno(), 'refused')
    return r
refused('trace init', lambda: call(101, 16, 1, 0, 0), errno.EPERM, errno.ESRCH, errno.ENOSYS)
refused('seize init', lambda: call(101, 0x4206, 1, 0, 0), errno.EPERM, errno.ESRCH, errno.ENOSYS)
refused('session keyring', lambda: call(250, 1, 0), errno.EPERM, errno.ENOSYS)
refused('join namespace', lambda: call(308, 0, 0x10000000), errno.EPERM, errno.ENOSYS)
refused('priority of init', lambda: os.setpriority(os.PRIO_PROCESS, 1, 19), errno.EPERM, errno.EACCES, errno.ESRCH)
refused('limits of init', lambda: call(302, 1, 7, 0, ctypes.create_string_buffer(16)), errno.EPERM, errno.ESRCH, errno.ENOSYS)
refused('host name', lambda: socket.sethostname('mine'), errno.EPERM, errno.ENOSYS)
for name in ('mem', 'fd', 'maps', 'environ', 'cwd', 'root', 'exe', 'ns/user', 'comm', 'status'):
    path = '/proc/1/' + name
    refused(path, lambda: os.listdir(path) if name == 'fd' else open(path).read(1), errno.EPERM, errno.EACCES, errno.ENOENT)
for pid in os.listdir('/proc'):
    if pid.isdigit() and int(pid) != os.getpid(): bad('process ' + pid)
for line in open('/proc/net/unix').read().split('\n')[1:]:
    if '@' in line: bad('socket ' + line)
for name in ('shm', 'sem', 'msg'):
    try: lines = open('/proc/sysvipc/' + name).read().split('\n')
    except FileNotFoundError: continue  # a kernel without it
    if len(lines) > 2: bad('IPC ' + name)
for where in ('/dev/shm', '/tmp', '/home/skill', '/workspace', '/dev/mqueue'):
    try: left = os.listdir(where)
    except FileNotFoundError: left = []
    if left: bad('%s: %s' % (where, left))
if socket.gethostname() == 'left': bad('host name')
if os.getpgid(0) != os.getpid() or os.getsid(0) != os.getpid(): bad('session %d, group %d' % (os.getsid(0), os.getpgid(0)))
if len([l for l in open('/proc/self/status') if l.startswith('NSpid')][0].split()) != 2: bad('namespaces of processes')
if open('/proc/self/cgroup').read().count('_zygote') + open('/proc/self/cgroup').read().count('skillrun-'): bad(open('/proc/self/cgroup').read())
for path in ('/proc/self/oom_score_adj', '/proc/sys/kernel/domainname', '/proc/self/timens_offsets', '/proc/self/comm'):
    refused(path, lambda: open(path, 'w'), errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT)

# What the next one must not find.
for where in ('/dev/shm', '/tmp', '/home/skill', '/workspace'):
    open(where + '/left', 'w').write('left')
libc.shmget(0x5eed, 4096, 0o1600); libc.semget(0x5eed, 1, 0o1600); libc.msgget(0x5eed, 0o1600)
s = socket.socket(socket.AF_UNIX); s.bind('\0left')
if os.fork() == 0:
    signal.pause()
print('tried', flush=True)
os._exit(0)
`

// A program in a prewarmed sandbox reaches neither its init nor the zygote, nor anything that
// another program left. It is tried for executed and for forked programs.
func TestPrewarmedAttack(t *testing.T) {
	h := openForkServer(t)
	s := pythonSpec(nil, "-c", attack) // every zygote has ctypes and socket
	executed := s
	executed.Python = nil
	for _, tt := range []struct {
		name string
		spec Spec
		wait func()
	}{
		{"executed", executed, func() { waitForBucket(t, h, executed, 1) }},
		{"forked", s, func() { waitForReady(t, h, s) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, h, tt.spec, "") // asks for one
			for range 4 {
				tt.wait()
				if got := run(t, h, tt.spec, ""); got.stdout != "tried\n" || got.exit.End != Exited || got.exit.Code != 0 {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
	noLeftovers(t, h)
}

// Waiting sandboxes, used sandboxes and the zygote have no namespace in common.
func TestPrewarmedNamespaces(t *testing.T) {
	h := openPrewarmed(t)
	s := Spec{Program: bash("true"), Env: testEnv}
	prewarm(t, h, s, 3)
	// The pool discards waiting sandboxes without requests, so the test runs a program in each.
	inits := map[string]int{}
	var all []*held
	for range 3 {
		k := hold(t, h, Spec{})
		all = append(all, k)
		inits["sandbox "+k.p.sandbox.ids.String()] = k.p.sandbox.init.pid
	}
	inits["the zygote"], inits["this process"] = zygoteOf(h).PID(), os.Getpid()
	names := []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}
	if preflight.TimeNamespaces() {
		names = append(names, "time")
	}
	for _, name := range names {
		of := map[string]string{}
		for who, pid := range inits {
			link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
			if err != nil {
				t.Error(err)
			}
			if other := of[link]; other != "" {
				t.Errorf("%s and %s share the %s namespace", who, other, name)
			}
			of[link] = who
		}
	}
	for _, k := range all {
		k.end(t)
	}
	noLeftovers(t, h)
}

// When the zygote ends, all its sandboxes end. Running programs are reported as lost, no
// resources are left, and another zygote starts.
func TestZygoteIsKilled(t *testing.T) {
	h := openPrewarmed(t)
	s := Spec{Program: bash("echo fine"), Env: testEnv}
	prewarm(t, h, s, 3)
	ran := []*held{hold(t, h, Spec{}), hold(t, h, Spec{})}
	first := zygoteOf(h)
	if err := unix.Kill(first.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-first.Gone() // all its sandboxes end, too
	for range 3 {  // at once, without waiting for another zygote
		if got := run(t, h, s, ""); got.stdout != "fine\n" {
			t.Errorf("got %+v", got)
		}
	}
	for _, k := range ran {
		if exit, err := k.p.Wait(); err == nil || !strings.Contains(err.Error(), "lost") || exit.Signal != syscall.SIGKILL || k.out.String() != "ready\n" {
			t.Errorf("got %+v, %v, %q, want that it was lost", exit, err, k.out)
		}
		k.in.Close()
	}
	if err := eventually(func() error {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		if h.pool.zygote == nil || h.pool.zygote == first {
			return fmt.Errorf("there is no other zygote")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	prewarm(t, h, s, 2)
	k := hold(t, h, Spec{})
	if !byZygote(k.p.sandbox) {
		t.Error("the new zygote's sandboxes are not used")
	}
	k.end(t)
	noLeftovers(t, h)
}

// A sandbox that was killed while it waited is not given to a program.
func TestWaitingIsKilled(t *testing.T) {
	h := openPrewarmed(t)
	s := Spec{Program: bash("echo fine"), Env: testEnv}
	dead := map[*sandbox]bool{} // some are still in their bucket the next time
	for n := range 3 {
		for _, c := range prewarm(t, h, s, 3)[:n+1] {
			if dead[c] {
				continue
			}
			dead[c] = true
			if err := unix.Kill(c.init.pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if err := c.init.wait(); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if got := run(t, h, s, ""); got.stdout != "fine\n" || got.exit.Code != 0 {
				t.Errorf("got %+v", got)
			}
		}
	}
	noLeftovers(t, h)
}

// Many programs run at once, while the pool makes and discards sandboxes.
func TestPoolUnderLoad(t *testing.T) {
	h := openPrewarmed(t)
	profiles := []Spec{{}, {Limits: Limits{OpenFiles: 77}}, {Workspace: Workspace{SizeBytes: 3 << 20}}}
	stop := make(chan struct{})
	var breathing, clients sync.WaitGroup
	breathing.Go(func() {
		// Without a pause this goroutine would take a processor from the programs.
		for pause := time.Tick(time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-pause:
				h.pool.shrink()
				h.pool.wakeUp()
			}
		}
	})
	for client := range 8 {
		clients.Go(func() {
			for i := range 25 {
				s := profiles[(client+i)%len(profiles)]
				want := fmt.Sprintf("%d %d", client, i)
				s.Program, s.Env = bash("echo "+want), testEnv
				if got := run(t, h, s, ""); got.stdout != want+"\n" || got.exit.End != Exited || got.exit.Code != 0 {
					t.Errorf("got %+v, want %s", got, want)
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	breathing.Wait()
	noLeftovers(t, h)
}

// If a program's limits differ from the sandbox's first limits, the program's limits hold.
func TestPrewarmedLimits(t *testing.T) {
	h := openPrewarmed(t)
	look := bash(`ulimit -n; stat -f -c '%b %S' /workspace /tmp | while read -r b s; do echo $((b * s)); done`)
	usual := Spec{Program: look, Env: testEnv}
	for _, s := range []Spec{
		{},
		{Limits: Limits{MemoryBytes: 96 << 20}},
		{Limits: Limits{MemoryBytes: 1 << 30, Processes: 7}},
		{Limits: Limits{Processes: 300, MilliCPUs: 1500}},
		{Limits: Limits{OpenFiles: 40}, Workspace: Workspace{SizeBytes: 5 << 20}},
	} {
		prewarm(t, h, usual, 1) // the program gets it if its profile fits
		s.Program, s.Env = look, testEnv
		got := run(t, h, s, "")
		with := s.withDefaults()
		size := strconv.FormatInt(with.Workspace.SizeBytes, 10)
		if want := fmt.Sprintf("%d\n%s\n%s\n", with.Limits.OpenFiles, size, size); got.stdout != want {
			t.Errorf("%+v: got %q, want %q", s.Limits, got.stdout, want)
		}
		k := hold(t, h, s)
		if !byZygote(k.p.sandbox) {
			t.Errorf("%+v: not made by the zygote", s.Limits)
		}
		if err := k.p.sandbox.group.Verify(with.Limits.MemoryBytes, with.Limits.pids()); err != nil {
			t.Errorf("%+v: %v", s.Limits, err)
		}
		k.end(t)
	}
	noLeftovers(t, h)
}

// A program is charged only with its own use: at least that, and no more than in a
// sandbox that is made at its Start.
func TestPrewarmedUsage(t *testing.T) {
	h := openPrewarmed(t)
	s := Spec{Program: command("/usr/bin/true")}
	prewarm(t, h, s, 1)
	prewarmed := run(t, h, s, "")
	asked := runBy(t, h.startDirect, s, "")
	if a, b := prewarmed.exit.Usage, asked.exit.Usage; a.MemoryPeakBytes > 2*b.MemoryPeakBytes || a.MemoryPeakBytes == 0 && b.MemoryPeakBytes != 0 {
		t.Errorf("prewarmed: got %+v, made at its start: %+v", a, b)
	}
	t.Logf("prewarmed: %+v, made at its start: %+v", prewarmed.exit.Usage, asked.exit.Usage)
	s.Program = command("python3", "-c", "x = bytearray(64 << 20)")
	s.Env = testEnv
	if got := run(t, h, s, ""); got.exit.Usage.MemoryPeakBytes < 64<<20 || got.exit.Usage.UserCPU+got.exit.Usage.SystemCPU <= 0 {
		t.Errorf("got %+v, want at least 64 MiB", got.exit.Usage)
	}
}

// A program arrives complete, however long it is: much longer than the control socket's
// buffer, in one here-document, in many words, and in a pipeline whose first command waits.
func TestPrewarmedLongProgram(t *testing.T) {
	h := openPrewarmed(t)
	text := strings.Repeat("0123456789abcde\n", 4<<20/16)
	many := append([]string{"printf", "%s\n"}, strings.Split(strings.TrimSpace(strings.Repeat("word ", 1<<16)), " ")...)
	s := Spec{Env: testEnv, Program: Program{
		{Pipeline: []Command{
			{Args: []string{"cat"}, Redirects: []Redirect{{FD: 0, Kind: Text, Text: text}}},
			{Args: []string{"tee", "copy"}},
			{Args: []string{"wc", "-c"}},
		}},
		{When: IfSucceeded, Pipeline: []Command{{Args: many}, {Args: []string{"wc", "-l"}}}},
		{When: IfSucceeded, Pipeline: []Command{{Args: []string{"wc", "-l"}, Redirects: []Redirect{{FD: 0, Kind: Read, Path: "copy"}}}}},
	}}
	for range 3 {
		got := run(t, h, s, "")
		if want := fmt.Sprintf("%d\n%d\n%d\n", len(text), 1<<16, len(text)/16); got.stdout != want {
			t.Errorf("got %q, %+v, want %q", got.stdout, got.exit, want)
		}
		waitForBucket(t, h, s, 1)
	}
	noLeftovers(t, h)
}

// A prewarmed sandbox can be destroyed while no file can be opened.
func TestDiscardWithoutDescriptors(t *testing.T) {
	h := openPrewarmed(t)
	s := Spec{Program: bash("true"), Env: testEnv}.withDefaults()
	h.pool.mu.Lock()
	z := h.pool.zygote
	h.pool.mu.Unlock()
	c, err := h.buildCloned(t.Context(), z, nil, s)
	if err != nil {
		t.Fatal(err)
	}
	// The test takes the descriptors again that the sandbox has freed before.
	var destroyed error
	withDescriptors(t, 0, func() {
		keep := make(chan struct{})
		var takers sync.WaitGroup
		takers.Go(func() {
			for {
				select {
				case <-keep:
					return
				default:
					if fd, err := unix.Dup(0); err == nil {
						defer unix.Close(fd)
					}
				}
			}
		})
		destroyed = c.destroyInit()
		close(keep)
		takers.Wait()
	})
	if err := c.destroy(); err != nil || destroyed != nil { // destroys the rest
		t.Errorf("got %v, then %v", destroyed, err)
	}
	noLeftovers(t, h)
}
