package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/socket/sockettest"
)

// A testNetwork is a Network that records the calls. Unless attach says otherwise it keeps the
// TUN until Detach, and carries nothing.
type testNetwork struct {
	attach func(context.Context, Link) error // may be nil
	detach func()                            // may be nil

	mu    sync.Mutex
	link  Link
	calls []string
}

func (n *testNetwork) Attach(ctx context.Context, l Link) error {
	n.mu.Lock()
	n.link, n.calls = l, append(n.calls, "attach")
	n.mu.Unlock()
	if n.attach == nil {
		return nil
	}
	return n.attach(ctx, l)
}

func (n *testNetwork) Detach() {
	if n.detach != nil {
		n.detach()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, "detach")
	if n.link.TUN != nil {
		n.link.TUN.Close()
	}
}

func (n *testNetwork) got(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.calls, want) {
		t.Errorf("calls: got %q, want %q", n.calls, want)
	}
}

// showNetwork prints the interfaces and routes that a program sees. It reads /proc and /sys, because
// programs have no ioctl for them.
const showNetwork = `
import socket
for line in list(open("/proc/net/dev"))[2:]:
    print("interface", line.split(":")[0].strip())
for line in open("/proc/net/if_inet6"):
    address, _, bits, _, _, name = line.split()
    print(name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address)), int(bits, 16))
for line in list(open("/proc/net/route"))[1:]:
    f = line.split()
    print("route", f[0], f[1], f[7])
for line in open("/proc/net/ipv6_route"):
    f = line.split()
    if f[9] != "lo" and f[0] != "ff00" + "0" * 28: print("route", f[9], socket.inet_ntop(socket.AF_INET6, bytes.fromhex(f[0])), int(f[1], 16))
for family, to, level, mtu in ((socket.AF_INET, "198.51.100.7", socket.SOL_IP, 14), (socket.AF_INET6, "2001:db8::7", socket.IPPROTO_IPV6, 24)):
    s = socket.socket(family, socket.SOCK_DGRAM)
    try:
        s.connect((to, 9))
        print("to", to, "from", s.getsockname()[0], s.getsockopt(level, mtu))
    except OSError as e:
        print("to", to, e.strerror)
print(open("/etc/resolv.conf").read(), end="")
`

const seenNetwork = `interface lo
interface eth0
eth0 fd73:6b72::2 128
lo ::1 128
route eth0 00000000 00000000
route eth0 fd73:6b72::2 128
route eth0 :: 0
to 198.51.100.7 from 192.0.0.2 65520
to 2001:db8::7 from fd73:6b72::2 65520
nameserver 192.0.0.1
nameserver fd73:6b72::1
`

const seenAlone = `interface lo
lo ::1 128
to 198.51.100.7 Network is unreachable
to 2001:db8::7 Network is unreachable
options timeout:1 attempts:1
`

// sorted are the different lines of a text: the kernel's tables have no order, and it lists a route
// in more than one.
func sorted(text string) []string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return slices.Compact(lines)
}

// A program sees the specified interface, and without a network only loopback.
func TestNetworkView(t *testing.T) { eachMaker(t, testNetworkView) }

func testNetworkView(t *testing.T, h *Host) {
	for _, tt := range []struct {
		name    string
		network Network
		want    string
	}{{"with a network", &testNetwork{}, seenNetwork}, {"without", nil, seenAlone}} {
		t.Run(tt.name, func(t *testing.T) {
			got := run(t, h, Spec{Program: command("python3", "-c", showNetwork), Env: testEnv, Network: tt.network}, "")
			if !slices.Equal(sorted(got.stdout), sorted(tt.want)) {
				t.Errorf("got %s%s, want %s", got.stdout, got.stderr, tt.want)
			}
		})
	}
	noLeftovers(t, h)
}

// changeNetwork tries to change the interface, to bypass it and to make another one.
const changeNetwork = `
import ctypes, errno, fcntl, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
address = lambda a: struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(a))

def attempt(name, do):
    try:
        do()
        print(name, "works")
    except OSError as e:
        print(name, errno.errorcode[e.errno])

request = lambda call, rest: fcntl.ioctl(s, call, struct.pack("16s24s", b"eth0", rest))
attempt("down", lambda: request(0x8914, struct.pack("h", 0)))
attempt("address", lambda: request(0x8916, address("192.0.0.9")))
attempt("MTU", lambda: request(0x8922, struct.pack("i", 1500)))
attempt("queue", lambda: request(0x8943, struct.pack("i", 10000)))
attempt("route", lambda: fcntl.ioctl(s, 0x890c, struct.pack("P16s16s16sH70x", 0, address("0.0.0.0"), address("0.0.0.0"), address("0.0.0.0"), 1)))
attempt("device", lambda: os.open("/dev/net/tun", os.O_RDWR))
attempt("node", lambda: os.mknod("/tmp/tun", 0o20600, os.makedev(10, 200)))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
attempt("raw6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW))
attempt("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
attempt("bind", lambda: s.bind(("192.0.0.9", 9)))
attempt("transparent", lambda: s.setsockopt(socket.SOL_IP, 19, 1))
attempt("sysctl", lambda: os.open("/proc/sys/net/ipv4/ip_forward", os.O_WRONLY))
attempt("resolv.conf", lambda: os.open("/etc/resolv.conf", os.O_WRONLY))

def unshare():
    if libc.unshare(0x40000000): raise OSError(ctypes.get_errno(), "")

attempt("namespace", unshare)
`

const refusedNetwork = `down ENOSYS
address ENOSYS
MTU ENOSYS
queue ENOSYS
route ENOSYS
device ENOENT
node ENOSYS
raw ENOSYS
raw6 ENOSYS
ping ENOSYS
packet ENOSYS
netlink ENOSYS
bind EADDRNOTAVAIL
transparent EPERM
sysctl EACCES
resolv.conf EROFS
namespace EPERM
`

func TestNetworkCannotBeChanged(t *testing.T) { eachMaker(t, testNetworkCannotBeChanged) }

func testNetworkCannotBeChanged(t *testing.T, h *Host) {
	got := run(t, h, Spec{Program: command("python3", "-c", changeNetwork+showNetwork), Env: testEnv, Network: &testNetwork{}}, "")
	if !slices.Equal(sorted(got.stdout), sorted(refusedNetwork+seenNetwork)) {
		t.Errorf("got %s%s, want %s%s", got.stdout, got.stderr, refusedNetwork, seenNetwork)
	}
}

// Detach comes after the program's last process, even if children outlive the main process.
func TestDetachComesLast(t *testing.T) { eachMaker(t, testDetachComesLast) }

func testDetachComesLast(t *testing.T, h *Host) {
	var c *sandbox
	n := &testNetwork{detach: func() {
		if busy, err := idsInUse(c.ids.script(), 1); err != nil || busy {
			t.Errorf("processes when the network is detached: %t, %v", busy, err)
		}
	}}
	k := startTalk(t, h, Spec{Program: bash("sleep 1000 & echo up; read x"), Network: n}, nil)
	k.line("up\n")
	c = k.p.sandbox
	n.got(t, "attach")
	fmt.Fprintln(k.in)
	k.wait()
	n.got(t, "attach", "detach")
	noLeftovers(t, h)
}

// A start that fails leaves nothing, and detaches the network that it got.
func TestNetworkOfFailedStarts(t *testing.T) { eachMaker(t, testNetworkOfFailedStarts) }

func testNetworkOfFailedStarts(t *testing.T, h *Host) {
	refused := errors.New("no carrier")
	n := &testNetwork{attach: func(context.Context, Link) error { return refused }}
	start := func(s Spec) *SetupError {
		t.Helper()
		var setup *SetupError
		if p, err := h.Start(t.Context(), s, IO{}); p != nil || !errors.As(err, &setup) {
			t.Fatalf("got %v, %v, want a SetupError", p, err)
		}
		return setup
	}
	ok := Spec{ID: "x", Program: command("/usr/bin/true"), Env: testEnv, Network: n}
	if setup := start(ok); setup.Step != "network" || !errors.Is(setup, refused) {
		t.Errorf("got %q, %v, want the carrier's error", setup.Step, setup)
	}
	n.got(t, "attach", "detach")

	n = &testNetwork{}
	ok.Network = n
	bad := ok
	bad.Workspace.Lower = []string{"/none"}
	if setup := start(bad); setup.Step != "workspace" {
		t.Errorf("got %q, %v", setup.Step, setup)
	}
	if n.calls[len(n.calls)-1] != "detach" {
		t.Errorf("got %q, want a last detach", n.calls)
	}

	n = &testNetwork{}
	bad = ok
	bad.Network, bad.Program = n, nil
	start(bad)
	n.got(t, "detach")
	noLeftovers(t, h)
}

// The end of a start's context ends a wait for the carrier.
func TestNetworkStartIsCanceled(t *testing.T) {
	h := openHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := &testNetwork{attach: func(ctx context.Context, l Link) error {
		cancel()
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	if p, err := h.Start(ctx, Spec{ID: "x", Program: command("/usr/bin/true"), Env: testEnv, Network: n}, IO{}); p != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", p, err)
	}
	n.got(t, "attach", "detach")
	noLeftovers(t, h)
}

// A carrier that has lost its connections ends them for the program: at once, with an error. Other
// sockets stay.
func TestCut(t *testing.T) { eachMaker(t, testCut) }

const cutProgram = `
import errno, os, socket, threading
inside = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(inside.getsockname())
server = inside.accept()[0]
own = socket.create_server(("192.0.0.2", 0))
client2 = socket.create_connection(own.getsockname())
server2 = own.accept()[0]

def connect(family, kind, to):
    s = socket.socket(family, kind)
    s.setblocking(False)
    try: s.connect(to)
    except BlockingIOError: pass
    s.setblocking(True)
    return s

outside = {
    "UDP": connect(socket.AF_INET, socket.SOCK_DGRAM, ("198.51.100.7", 9)),
    "UDP 6": connect(socket.AF_INET6, socket.SOCK_DGRAM, ("2001:db8::7", 9)),
    "UDP mapped": connect(socket.AF_INET6, socket.SOCK_DGRAM, ("::ffff:198.51.100.7", 9)),
    "TCP": connect(socket.AF_INET, socket.SOCK_STREAM, ("198.51.100.7", 9)),
    "TCP 6": connect(socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::7", 9)),
    "TCP mapped": connect(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:198.51.100.7", 9)),
}
answers = {}

def read(name):
    try: answers[name] = outside[name].recv(1)
    except OSError as e: answers[name] = errno.errorcode[e.errno]

readers = [threading.Thread(target=read, args=(name,)) for name in outside if name.startswith("UDP")]
for r in readers: r.start()
print("connected", flush=True)
input()
for r in readers: r.join()
for name in outside:
    if name.startswith("TCP"): answers[name] = errno.errorcode[outside[name].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)]
for name in sorted(outside): print(name, answers[name])
for to, at in ((client, server), (client2, server2)):
    to.sendall(b"x")
    print(at.recv(1).decode())
socket.create_connection(inside.getsockname())
print("end", flush=True)
`

func testCut(t *testing.T, h *Host) {
	n := &testNetwork{}
	k := startTalk(t, h, Spec{Program: command("python3", "-c", cutProgram), Network: n}, nil)
	k.line("connected\n")
	if err := n.link.Cut(); err != nil {
		t.Error(err)
	}
	fmt.Fprintln(k.in)
	k.line("TCP ECONNABORTED\nTCP 6 ECONNABORTED\nTCP mapped ECONNABORTED\nUDP ECONNABORTED\nUDP 6 ECONNABORTED\nUDP mapped ECONNABORTED\nx\nx\nend\n")
	k.wait()
	if err := n.link.Cut(); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// echo answers each UDP packet of the sandbox with the same payload, from the address that the
// packet went to.
func echo(tun *os.File) error {
	b := make([]byte, 1<<16)
	for {
		n, err := unix.Read(int(tun.Fd()), b)
		if errors.Is(err, unix.EAGAIN) {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(tun.Fd()), Events: unix.POLLIN}}, -1)
			if err == nil || errors.Is(err, unix.EINTR) {
				continue
			}
		}
		if err != nil {
			return err
		}
		p := b[LinkHeaderBytes:n]
		at, size := 12, 4 // where the addresses are, and their size
		if p[0]>>4 == 6 {
			at, size = 8, 16
		}
		udp := p[at+2*size:]
		swap(p[at:at+size], p[at+size:at+2*size])
		swap(udp[:2], udp[2:4])
		// The header still says that the sum is to be computed, so the kernel doesn't check it.
		_, err = unix.Write(int(tun.Fd()), b[:n])
		if err != nil || strings.HasSuffix(string(p), "last") {
			return err
		}
	}
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

// Packets of the program reach its Network, and answers reach the program.
func TestNetworkCarries(t *testing.T) { eachMaker(t, testNetworkCarries) }

func testNetworkCarries(t *testing.T, h *Host) {
	ended := make(chan error, 1)
	n := &testNetwork{attach: func(_ context.Context, l Link) error {
		go func() { ended <- echo(l.TUN) }()
		return nil
	}}
	const ask = `
import socket
for to, text in (("198.51.100.7", b"first"), ("2001:db8::7", b"second"), ("203.0.113.1", b"x" * 1400 + b"last")):
    s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((to, 9))
    s.send(text)
    print(s.recv(2000) == text)
`
	got := run(t, h, Spec{Program: command("python3", "-c", ask), Env: testEnv, Network: n}, "")
	if got.stdout != "True\nTrue\nTrue\n" {
		t.Errorf("got %q, %q", got.stdout, got.stderr)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Each of many sandboxes has its own network, and after them nothing is left: no file, which
// would keep a namespace with its interface.
func TestNetworksLeaveNothing(t *testing.T) { eachMaker(t, testNetworksLeaveNothing) }

func testNetworksLeaveNothing(t *testing.T, h *Host) {
	times := 200
	if h.pool == nil {
		times = 20 // each takes ten times as long
	}
	once := func() {
		n := &testNetwork{}
		run(t, h, Spec{Program: command("/usr/bin/true"), Env: testEnv, Network: n}, "")
		n.got(t, "attach", "detach")
	}
	for range 5 {
		once()
	}
	files := sockettest.OpenFiles(t)
	for range times {
		once()
	}
	noLeftovers(t, h)
	if got := keptFiles(t, files); got > files {
		t.Errorf("open files: got %d, want %d", got, files)
	}
}

func TestOutside(t *testing.T) {
	id := func(peer ...byte) []byte {
		b := make([]byte, diagIDSize)
		copy(b[20:], peer)
		return b
	}
	mapped := func(a ...byte) []byte { return append(append(make([]byte, 10), 0xff, 0xff), a...) }
	for _, tt := range []struct {
		name   string
		family byte
		id     []byte
		want   bool
	}{
		{"IPv4", unix.AF_INET, id(198, 51, 100, 7), true},
		{"loopback", unix.AF_INET, id(127, 3, 0, 1), false},
		{"its own", unix.AF_INET, id(192, 0, 0, 2), false},
		{"the name server", unix.AF_INET, id(192, 0, 0, 1), true},
		{"IPv6", unix.AF_INET6, id(0x20, 1, 0xd, 0xb8), true},
		{"mapped", unix.AF_INET6, id(mapped(198, 51, 100, 7)...), true},
		{"mapped loopback", unix.AF_INET6, id(mapped(127, 0, 0, 1)...), false},
		{"mapped and its own", unix.AF_INET6, id(mapped(192, 0, 0, 2)...), false},
		{"loopback of IPv6", unix.AF_INET6, id(binary.BigEndian.AppendUint64(make([]byte, 8), 1)...), false},
		{"its own of IPv6", unix.AF_INET6, id(SandboxIPv6.AsSlice()...), false},
	} {
		if got := outside(tt.family, tt.id); got != tt.want {
			t.Errorf("%s: got %t, want %t", tt.name, got, tt.want)
		}
	}
}

// The interface is a boundary of the machine only if sandboxes may have a network.
func TestNetworkBoundary(t *testing.T) {
	c := testConfig(t)
	for _, networks := range []bool{false, true} {
		c.Networks = networks
		all := Boundaries(c)
		at := slices.IndexFunc(all, func(b Boundary) bool { return b.Name == "network device" })
		if found := at >= 0 && all[at].Found; found != networks {
			t.Errorf("with networks %t: got %+v", networks, all)
		}
	}
}
