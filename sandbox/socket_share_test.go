package sandbox

import (
	"bufio"
	"io"
	"math"
	"os"
	"strings"
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
for _ in range(100):
    to, datagrams = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
    to.bind(("127.0.0.1", 0))
    datagrams.connect(to.getsockname())
    for _ in range(64): datagrams.send(data[:4000])
    keep.append(to)
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
	plenty := machineStat{tcp: math.MaxInt64, udp: math.MaxInt64, orphans: math.MaxInt64}
	for _, tt := range []struct {
		name   string
		bounds machineStat
		over   bool
	}{
		{"plenty of all", plenty, false},
		{"short of TCP memory", machineStat{0, plenty.udp, plenty.orphans}, true},
		{"short of UDP memory", machineStat{plenty.tcp, 0, plenty.orphans}, true},
		{"short of orphans", machineStat{plenty.tcp, plenty.udp, 39}, true},
	} {
		m.bounds = func() (machineStat, error) { return tt.bounds, nil }
		if over, err := m.exceeds(math.MaxInt64); over != tt.over || err != nil {
			t.Errorf("%s: got %v, %v, want %v", tt.name, over, err, tt.over)
		}
	}
	if sum, err := sumSockets(m.diag); sum.orphans != 40 || sum.tcp < 1<<20 || sum.udp < 1<<20 || err != nil {
		t.Errorf("got %+v, %v, want 40 orphans", sum, err)
	}
	stdin.Close()
	if exit, err := p.Wait(); exit.End != Exited || err != nil {
		t.Errorf("got %+v, %v", exit, err)
	}
}

func TestSharesOfTCP(t *testing.T) {
	b := machineStat{tcp: 1000, udp: 500, orphans: 80}
	page := int64(os.Getpagesize())
	for _, tt := range []struct {
		stat     machineStat
		sum      socketSum
		programs int
		over     bool
	}{
		{machineStat{tcp: 1000, udp: 500, orphans: 80}, socketSum{tcp: 1000 * page, udp: 500 * page, orphans: 80}, 10, false},
		{machineStat{tcp: 1001}, socketSum{tcp: 100 * page, udp: 500 * page, orphans: 80}, 10, false},
		{machineStat{tcp: 1001}, socketSum{tcp: 101 * page}, 10, true},
		{machineStat{tcp: 1001}, socketSum{tcp: 1000 * page}, 0, false},
		{machineStat{udp: 501}, socketSum{tcp: 1000 * page, udp: 50 * page}, 10, false},
		{machineStat{udp: 501}, socketSum{udp: 51 * page}, 10, true},
		{machineStat{orphans: 81}, socketSum{tcp: 1000 * page, orphans: 8}, 10, false},
		{machineStat{orphans: 81}, socketSum{orphans: 9}, 10, true},
	} {
		if got := b.overShare(tt.stat, tt.sum, tt.programs); got != tt.over {
			t.Errorf("%+v, %+v, %d programs: got %v", tt.stat, tt.sum, tt.programs, got)
		}
	}
	if got, err := machineBounds(); min(got.tcp, got.udp, got.orphans) < 1 || err != nil {
		t.Errorf("of this machine: got %+v, %v", got, err)
	}
	if got, err := setting("no_such_setting", 0, 7); got != 7 || err != nil {
		t.Errorf("of a setting that is not there: got %d, %v, want the other value", got, err)
	}
}

func TestParseStat(t *testing.T) {
	const text = "sockets: used 12\nTCP: inuse 3 orphan 4 tw 5 alloc 75 mem 48\nUDP: inuse 6 mem 21\nUDPL"
	want := socketStat{used: 12, machine: machineStat{tcp: 48, udp: 21, orphans: 4}}
	if got, err := parseStat([]byte(text)); got != want || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	whole := []byte(text)
	if n := testing.AllocsPerRun(10, func() { _, _ = parseStat(whole) }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
	for _, text := range []string{
		"", "sockets: used 12\n", text[:len(text)-len("\nUDPL")], strings.Replace(text, "12", "x", 1), strings.Replace(text, "orphan", "orphans", 1),
		strings.Replace(text, " mem 48", "", 1), strings.Replace(text, " 21", "", 1),
	} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}
