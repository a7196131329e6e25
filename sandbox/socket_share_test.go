package sandbox

import (
	"bufio"
	"io"
	"math"
	"os"
	"testing"
	"time"
)

// heldByTCP has 40 orphans, and some megabytes that nobody reads.
const heldByTCP = `
def connect(sndbuf=None, rcvbuf=None):
    server = socket.socket()
    if rcvbuf: server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    server.bind(("127.0.0.1", 0))
    server.listen()
    client = socket.socket()
    if sndbuf: client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
    client.connect(server.getsockname())
    keep.append(server.accept()[0])
    client.setblocking(False)
    fill(client.send)
    return client

for _ in range(40): connect(4608, 2304).close()
for _ in range(6): keep.append(connect())
print("up", flush=True)
input()
`

// A program that holds more than its share of the machine's TCP memory or orphans is over it, but only if the machine is
// short of them.
func TestSocketShare(t *testing.T) {
	h := openHost(t)
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	spec := Spec{ID: "share", Program: command("python3", "-c", fillPrelude+heldByTCP), Env: testEnv, Limits: Limits{MemoryBytes: 512 << 20}}
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
	for _, tt := range []struct {
		name   string
		bounds tcpBounds
		over   bool
	}{
		{"plenty of both", tcpBounds{math.MaxInt64, math.MaxInt64}, false},
		{"short of memory", tcpBounds{0, math.MaxInt64}, true},
		{"short of orphans", tcpBounds{math.MaxInt64, 39}, true},
	} {
		m.bounds = func() (tcpBounds, error) { return tt.bounds, nil }
		if over, err := m.exceeds(math.MaxInt64); over != tt.over || err != nil {
			t.Errorf("%s: got %v, %v, want %v", tt.name, over, err, tt.over)
		}
	}
	if sum, err := sumSockets(m.diag); sum.orphans != 40 || sum.tcp < 1<<20 || err != nil {
		t.Errorf("got %+v, %v, want 40 orphans", sum, err)
	}
	stdin.Close()
	if exit, err := p.Wait(); exit.End != Exited || err != nil {
		t.Errorf("got %+v, %v", exit, err)
	}
}

func TestSharesOfTCP(t *testing.T) {
	b := tcpBounds{pages: 1000, orphans: 80}
	page := int64(os.Getpagesize())
	for _, tt := range []struct {
		stat     socketStat
		sum      socketSum
		programs int
		over     bool
	}{
		{socketStat{pages: 1000, orphans: 80}, socketSum{tcp: 1000 * page, orphans: 80}, 10, false},
		{socketStat{pages: 1001}, socketSum{tcp: 100 * page, orphans: 80}, 10, false},
		{socketStat{pages: 1001}, socketSum{tcp: 100*page + 1}, 10, true},
		{socketStat{pages: 1001}, socketSum{tcp: 1000 * page}, 0, false},
		{socketStat{orphans: 81}, socketSum{tcp: 1000 * page, orphans: 8}, 10, false},
		{socketStat{orphans: 81}, socketSum{orphans: 9}, 10, true},
	} {
		if got := b.overShare(tt.stat, tt.sum, tt.programs); got != tt.over {
			t.Errorf("%+v, %+v, %d programs: got %v", tt.stat, tt.sum, tt.programs, got)
		}
	}
	if got, err := machineTCP(); got.pages < 1 || got.orphans < 1 || err != nil {
		t.Errorf("of this machine: got %+v, %v", got, err)
	}
	if got, err := setting("no_such_setting", 0, 7); got != 7 || err != nil {
		t.Errorf("of a setting that is not there: got %d, %v, want the other value", got, err)
	}
}

func TestParseStat(t *testing.T) {
	const text = "sockets: used 12\nTCP: inuse 3 orphan 4 tw 5 alloc 75 mem 48\nUDP: inu"
	if got, err := parseStat([]byte(text)); got != (socketStat{used: 12, orphans: 4, pages: 48}) || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, text := range []string{
		"", "sockets: used 12\n", "sockets: used 12\nTCP: inuse 3 orphan 4 tw 5 alloc 75 mem 48", "sockets: used x\nTCP: inuse 3 orphan 4 tw 5 alloc 75 mem 48\n",
		"sockets: used 12\nTCP: inuse 3 orphans 4 tw 5 alloc 75 mem 48\n",
	} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}
