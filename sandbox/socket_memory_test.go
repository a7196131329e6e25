package sandbox

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const copies = "copies of what was sent"

// fillSockets are programs that fill what no cgroup is charged with. Each stops at
// eight times the memory limit of 32 MiB, says so and waits for its end.
var fillSockets = map[string]string{
	"connections that nobody accepts": `
size = 0
while size < 256 << 20:
    server = socket.create_server(("127.0.0.1", 0), backlog=4096)
    keep.append(server)
    for _ in range(100):
        client = socket.create_connection(server.getsockname())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # which is charged
        client.setblocking(False)
        size += fill(client.send)
        client.close()
`,
	"connections of IPv6": `
size = 0
while size < 256 << 20:
    server = socket.create_server(("::1", 0), family=socket.AF_INET6, backlog=4096)
    keep.append(server)
    for _ in range(100):
        client = socket.create_connection(server.getsockname()[:2])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)  # which is charged
        client.setblocking(False)
        size += fill(client.send)
        client.close()
`,
	"empty connections": `
for _ in range(64):
    server = socket.create_server(("127.0.0.1", 0), backlog=4096)
    keep.append(server)
    for _ in range(1024):
        socket.create_connection(server.getsockname()).close()
`,
	// SOF_TIMESTAMPING_TX_SOFTWARE of linux/net_tstamp.h, in a message of SO_TIMESTAMPING.
	copies: `
stamp = [(socket.SOL_SOCKET, 37, struct.pack("I", 2))]
for _ in range(900):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    keep.append(s)
    fill(lambda data: s.sendmsg([data[:60000]], stamp, 0, ("127.0.0.1", 9)), times=300)
`,
}

const fillPrelude = `
import os, signal, socket, struct
keep, data = [], bytes(1 << 20)

def fill(send, times=1 << 20):
    n = 0
    for _ in range(times):
        try: n += send(data)
        except BlockingIOError: break
        except ConnectionRefusedError: pass
        except OSError: break
    return n
`

const fillEnd = `
print("all of it is held", flush=True)
signal.pause()
`

// A program ends when its sockets hold more uncharged memory than its limit.
func TestSocketMemory(t *testing.T) {
	c := testConfig(t)
	c.Prewarmed = max(c.Prewarmed, 1)
	h := openWith(t, c)
	for name, program := range fillSockets {
		for kind, start := range map[string]func(context.Context, Spec, IO) (*Process, error){"direct": h.startDirect, "zygote": h.Start} {
			t.Run(name+" "+kind, func(t *testing.T) {
				if name == copies && hasStampSetting() {
					t.Skip("this kernel makes none for a sandbox")
				}
				got := runBy(t, start, Spec{
					Program: command("python3", "-c", fillPrelude+program+fillEnd), Env: testEnv,
					Limits: Limits{MemoryBytes: 32 << 20, Processes: 8, Wall: 5 * time.Minute},
				}, "")
				// On v2 the kernel may be first: there it charges what clients send.
				byDaemon := got.exit.OOMKills == 0 || h.cgroups.Unified
				if got.exit.End != OOMKilled || !byDaemon || got.stderr != "" {
					t.Errorf("got %+v, %q, %q, want it ended for what its sockets hold", got.exit, got.stdout, got.stderr)
				}
			})
		}
	}
	noLeftovers(t, h)
}

// manySockets is a harmless program: it has accepted connections, some that wait, and
// local sockets.
const manySockets = `
server = socket.create_server(("127.0.0.1", 0), backlog=128)
for _ in range(200):
    client = socket.create_connection(server.getsockname())
    keep.extend([client, server.accept()[0]])
    client.sendall(data[:10000])
    keep.extend(socket.socketpair())
for _ in range(100):
    client = socket.create_connection(server.getsockname())
    client.sendall(data[:10000])
    keep.append(client)
sent = 300 * 10000
print("up", flush=True)
input()
`

// TestSocketMeter measures a program that holds a known amount.
func TestSocketMeter(t *testing.T) {
	h := openHost(t)
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	spec := Spec{ID: "meter", Program: command("python3", "-c", fillPrelude+manySockets), Env: testEnv, Limits: Limits{MemoryBytes: 64 << 20}}
	p, err := h.Start(t.Context(), spec, IO{Stdin: in, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "up\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	ran := time.Duration(0)
	m := newSocketMeter(p.sandbox.init.pid, func() (time.Duration, error) { ran += socketCPU; return ran, nil }, h.programs)
	defer m.close()
	if s, err := m.count(); s.used < 1001 || s.used > 1010 || err != nil {
		t.Errorf("counted %+v, %v, want 1001 sockets", s, err)
	}
	const sent = 300 * 10000
	for limit, want := range map[int64]bool{64 << 20: false, 32 << 20: false, sent: true} {
		if got, err := m.exceeds(limit); got != want || err != nil {
			t.Errorf("exceeds %d: got %v, %v", limit, got, err)
		}
	}
	// A buffer is larger than its content.
	if sum, err := sumSockets(m.diag); sum.held < sent+100*unacceptedBytes || sum.held > 10*sent || sum.listed != 601 || err != nil {
		t.Errorf("got %+v, %v", sum, err)
	}
	stdin.Close()
	if exit, err := p.Wait(); exit.End != Exited || err != nil {
		t.Errorf("got %+v, %v", exit, err)
	}
	// The open files of a meter keep the namespace, but not its sockets.
	if over, err := m.exceeds(1); over || err != nil {
		t.Errorf("after the end: got %v, %v", over, err)
	}
	gone := newSocketMeter(p.sandbox.init.pid, nil, nil)
	defer gone.close()
	if _, err := gone.exceeds(1); !errors.Is(err, unix.ENOENT) {
		t.Errorf("of a sandbox that is gone: got %v", err)
	}
}

// A program that does not run fills no socket, so it costs the daemon no lists of the machine's sockets.
func TestSocketMeterOfASleeper(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a network namespace, which needs root: -short leaves it out")
	}
	var ran time.Duration
	var failed error
	m := newSocketMeter(os.Getpid(), func() (time.Duration, error) { return ran, failed }, nil)
	defer m.close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if _, err := m.exceeds(1); err != nil || m.diag < 0 {
		t.Fatalf("the first time: got %v, want a list", err)
	}
	// Each further list fails.
	unix.Close(m.diag)
	m.diag = math.MaxInt32
	defer func() { m.diag = -1 }()
	if over, err := m.exceeds(1); over || err != nil {
		t.Errorf("without processor time: got %v, %v, want no list", over, err)
	}
	ran += socketCPU
	if _, err := m.exceeds(1); !errors.Is(err, unix.EBADF) {
		t.Errorf("after %v of processor time: got %v, want a list", socketCPU, err)
	}
	ran++
	if over, err := m.exceeds(1); over || err != nil {
		t.Errorf("soon after a list: got %v, %v, want no list", over, err)
	}
	m.listed = m.listed.Add(-socketPause)
	if _, err := m.exceeds(1); !errors.Is(err, unix.EBADF) {
		t.Errorf("after %v: got %v, want a list", socketPause, err)
	}
	failed = unix.ENOENT
	if _, err := m.exceeds(1); !errors.Is(err, failed) {
		t.Errorf("without a known processor time: got %v", err)
	}
}

// diagMessage is one message of a sock_diag answer.
func diagMessage(kind uint16, body ...byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = append(m, make([]byte, unix.SizeofNlMsghdr-len(m))...)
	return append(m, body...)
}

// diagSocket is the kernel's message about one socket.
func diagSocket(inode uint32, words ...uint32) []byte {
	body := make([]byte, diagMessageSize)
	binary.NativeEndian.PutUint32(body[diagInodeAt:], inode)
	body = append(body, 5, 0, 8, 0, 1, 0, 0, 0) // another attribute, with padding
	body = binary.NativeEndian.AppendUint16(body, uint16(unix.SizeofNlAttr+4*len(words)))
	body = binary.NativeEndian.AppendUint16(body, diagMemory)
	for _, w := range words {
		body = binary.NativeEndian.AppendUint32(body, w)
	}
	return diagMessage(unix.SOCK_DIAG_BY_FAMILY, body...)
}

func TestSocketAnswers(t *testing.T) {
	of := func(messages ...[]byte) (all []byte) {
		for _, m := range messages {
			all = append(all, m...)
		}
		return all
	}
	done := diagMessage(unix.NLMSG_DONE, 0, 0, 0, 0)
	some := diagSocket(7, 1000, 1, 1, 1, 1, 1, 200, 30, 1)
	refused := binary.NativeEndian.AppendUint32(nil, uint32(0x100000000-int64(unix.ENOENT)))
	for _, tt := range []struct {
		name   string
		packet []byte
		held   int64
		done   bool
		err    error
	}{
		{"nothing", nil, 0, false, nil},
		{"the end", done, 0, true, nil},
		{"two sockets and the end", of(some, diagSocket(0, 5, 0, 0, 0, 0, 0, 0, 0, 0), done), 1230 + 5 + unacceptedBytes, true, nil},
		{"more follow", some, 1230, false, nil},
		{"no memory is said", diagSocket(7, 1, 2, 3), 0, false, nil},
		{"no such protocol", diagMessage(unix.NLMSG_ERROR, refused...), 0, false, unix.ENOENT},
		{"too short", diagMessage(unix.SOCK_DIAG_BY_FAMILY, 1, 2, 3), 0, false, errDiagAnswer},
		{"another kind", diagMessage(99), 0, false, errDiagAnswer},
		{"a length beyond the packet", some[:len(some)-4], 0, false, errDiagAnswer},
		{"a length of nothing", make([]byte, unix.SizeofNlMsghdr), 0, false, errDiagAnswer},
	} {
		var sum socketSum
		done, err := parseDiag(tt.packet, func(body []byte) error { return sum.add(unix.IPPROTO_TCP, body) })
		if sum.held != tt.held || done != tt.done || !errors.Is(err, tt.err) {
			t.Errorf("%s: got %d, %v, %v, want %d, %v, %v", tt.name, sum.held, done, err, tt.held, tt.done, tt.err)
		}
	}
}
