package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"github.com/skillrun/skillrun/internal/network"
)

// A hostileInternet is a machine that the daemon's machine can reach at a public address, at a private
// one and at the address of a metadata service. Its name server lies. It notes every request that
// arrives: a program may see a refusal although its packets went out.
type hostileInternet struct {
	mu    sync.Mutex
	seen  []string
	asked int           // questions about rebind.example
	held  chan struct{} // a request for /hold came
	freed chan struct{} // a connection of such a request has ended
}

const (
	privateHost  = "10.0.0.1"
	metadataHost = "169.254.169.254"
)

func (i *hostileInternet) note(format string, args ...any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen = append(i.seen, fmt.Sprintf(format, args...))
}

// take returns the requests that arrived since the last call.
func (i *hostileInternet) take() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	seen := i.seen
	i.seen = nil
	return seen
}

func (i *hostileInternet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	i.note("%s %s at %s", r.Method, r.Host, to)
	if r.URL.Path != "/hold" {
		fmt.Fprintln(w, "hello,", r.Host)
		return
	}
	fmt.Fprint(w, "x")
	_ = http.NewResponseController(w).Flush()
	i.held <- struct{}{}
	<-r.Context().Done()
	i.freed <- struct{}{}
}

// ServeDNS answers everything with the public address, and the names of attacks with others.
func (i *hostileInternet) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	question := q.Question[0]
	// The helper asks for the prefix of the network's translator, whatever the program does.
	own := question.Name == "ipv4only.arpa." && question.Qtype == dns.TypeAAAA
	if !own && question.Name != "web.example." && question.Name != "rebind.example." && question.Name != "mixed.example." && question.Name != "mapped.example." {
		i.note("question %s", question.Name)
	}
	var records []string
	switch {
	case question.Qtype == dns.TypeTXT:
		i.note("question for a text")
		records = []string{"TXT smuggled"}
	case question.Qtype == dns.TypeAAAA && question.Name == "mapped.example.":
		records = []string{"AAAA ::ffff:" + privateHost, "AAAA 64:ff9b::a00:1", "AAAA fd00:ec2::254", "AAAA ::1"}
	case question.Qtype != dns.TypeA || question.Name == "mapped.example.":
	case question.Name == "mixed.example.":
		records = []string{"A " + webAddress, "A " + privateHost, "A 127.0.0.1", "A " + metadataHost}
	case question.Name == "rebind.example.":
		i.mu.Lock()
		i.asked++
		first := i.asked == 1
		i.mu.Unlock()
		records = []string{"A " + privateHost}
		if first {
			records = []string{"A " + webAddress}
		}
	default:
		records = []string{"A " + webAddress}
	}
	a := new(dns.Msg).SetReply(q)
	for _, text := range records {
		if r, err := dns.NewRR(question.Name + " 0 IN " + text); err == nil {
			a.Answer = append(a.Answer, r)
		}
	}
	_ = w.WriteMsg(a)
}

// serve listens on every address of the namespace.
func (i *hostileInternet) serve(t *testing.T, n *namespace) {
	t.Helper()
	var web, tls, names net.Listener
	var packets net.PacketConn
	n.do(t, func() (err error) {
		lo, err := netlink.LinkByName("lo")
		for _, host := range []string{privateHost, metadataHost} {
			address, _ := netlink.ParseAddr(host + "/32")
			err = errors.Join(err, netlink.AddrAdd(lo, address))
		}
		for at, l := range map[string]*net.Listener{":80": &web, ":443": &tls, ":53": &names} {
			if err == nil {
				*l, err = net.Listen("tcp4", at)
			}
		}
		if err == nil {
			packets, err = net.ListenPacket("udp4", webAddress+":53")
		}
		return err
	})
	server := &http.Server{Handler: i}
	go server.Serve(web)
	go func() {
		for {
			c, err := tls.Accept()
			if err != nil {
				return
			}
			// The gateway connects before it reads the program's TLS server name. So only bytes count.
			go func() {
				defer c.Close()
				if n, _ := c.Read(make([]byte, 1)); n > 0 {
					i.note("TLS at %s", c.LocalAddr())
				}
			}()
		}
	}()
	udp, tcp := &dns.Server{PacketConn: packets, Handler: i}, &dns.Server{Listener: names, Handler: i}
	go udp.ActivateAndServe()
	go tcp.ActivateAndServe()
	t.Cleanup(func() { server.Close(); tls.Close(); packets.Close(); names.Close() })
}

// startOnHostileInternet returns the daemon, the hostile machine, and the daemon's namespace.
func startOnHostileInternet(t *testing.T, dir, extra string) (*running, *hostileInternet, *namespace) {
	t.Helper()
	outside, machine := newNamespace(t), newNamespace(t)
	connect(t, machine, daemonAddress+"/24", outside, webAddress+"/24")
	machine.do(t, func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Gw: net.ParseIP(webAddress)})
	})
	i := &hostileInternet{held: make(chan struct{}, 8), freed: make(chan struct{}, 8)}
	i.serve(t, outside)
	d := launchIn(t, dir, extra, machine)
	return d, i, machine
}

// helpers are the pids of the daemon's network helpers: they have its network namespace.
func helpers(t *testing.T, machine *namespace) (pids []int) {
	t.Helper()
	want, err := os.Stat(machine.path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		command, _ := os.ReadFile(p + "/cmdline")
		is, err := os.Stat(p + "/ns/net")
		if err == nil && os.SameFile(is, want) && strings.Contains(string(command), network.Program) {
			pid, _ := strconv.Atoi(filepath.Base(p))
			pids = append(pids, pid)
		}
	}
	return pids
}

// escapes are ways around the rules. Each prints one line; a line with "LEAK" is an escape.
const escapes = `
import ctypes, errno, os, socket, ssl, struct, sys

def dial(to, port=80, family=0):
    last = None
    for f, kind, proto, _, at in socket.getaddrinfo(to, port, family, socket.SOCK_STREAM):
        s = socket.socket(f, kind)
        s.settimeout(100)
        try:
            s.connect(at)
            return s
        except OSError as e:
            last = e
    raise last

def get(to, host, start="GET / HTTP/1.1", port=80):
    s = dial(to, port)
    s.sendall(f"{start}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    answer = b""
    while True:
        data = s.recv(4096)
        if not data: break
        answer += data
    if answer.startswith(b"HTTP/1.1 200"): return "LEAK " + answer.decode()
    return "refused"

def question(name, kind):
    return struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0" + struct.pack("!HH", kind, 1)

def ask(server, name, kind, tcp=False):
    q = question(name, kind)
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    s.settimeout(100)
    s.connect((server, 53))
    if tcp:
        s.sendall(struct.pack("!H", len(q)) + q)
        a = s.recv(4096)[2:]
    else:
        s.send(q)
        a = s.recv(4096)
    if not a: return "closed"
    flags, _, answers = struct.unpack_from("!HHH", a, 2)
    return "LEAK" if answers else "no answer, code %d" % (flags & 15)

def tls(name, to):
    c = ssl.create_default_context()
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    s = c.wrap_socket(dial(to, 443), server_hostname=name)
    return "LEAK"

def bind(address):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.bind((address, 0))
    return "LEAK"

def addresses(name):
    got = {a[4][0] for a in socket.getaddrinfo(name, 80)}
    return "LEAK %s" % got if got - {"20.1.0.1"} else "public alone"

try: web = socket.getaddrinfo("web.example", 80, socket.AF_INET)[0][4][0]
except socket.gaierror: web = "20.1.0.1"

def attempt(name, do, *args):
    try: result = do(*args)
    except socket.gaierror as e: result = "not resolved"
    except OSError as e: result = errno.errorcode.get(e.errno, type(e).__name__)
    print(name + ": " + result, flush=True)

for to in ("10.0.0.1", "167772161", "0xa000001", "012.0.0.1", "10.1", "169.254.169.254", "2852039166", "0251.0376.0251.0376", "127.0.0.1.nip.example",
           "20.1.0.2", "0.0.0.0", "192.0.0.1"):
    attempt("address " + to, get, to, "web.example")
for to in ("::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "2002:a00:1::1", "::10.0.0.1", "fd00:ec2::254", "fe80::1%eth0"):
    attempt("address " + to, get, to, "web.example")
attempt("rebinding, first", addresses, "rebind.example")
attempt("rebinding, second", addresses, "rebind.example")
attempt("mixed answer", addresses, "mixed.example")
attempt("mapped answer", addresses, "mapped.example")
attempt("another name", get, "other.example", "other.example")
attempt("another host", get, web, "other.example")
attempt("no host", get, web, "")
attempt("CONNECT", get, web, "other.example:443", "CONNECT other.example:443 HTTP/1.1")
attempt("CONNECT to an address", get, web, "10.0.0.1:80", "CONNECT 10.0.0.1:80 HTTP/1.1")
attempt("another port", get, web, "web.example", "GET / HTTP/1.1", 8080)
attempt("SNI", tls, "other.example", web)
attempt("no SNI", tls, None, web)
attempt("TXT", ask, "192.0.0.1", "web.example", 16)
attempt("ANY", ask, "192.0.0.1", "web.example", 255)
attempt("name over TCP", ask, "192.0.0.1", "other.example", 1, True)
attempt("other resolver", ask, web, "web.example", 1)
attempt("other resolver over TCP", ask, web, "web.example", 1, True)
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) and "LEAK")
attempt("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) and "LEAK")
attempt("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) and "LEAK")
attempt("raw, IPv6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW) and "LEAK")
attempt("SCTP", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132) and "LEAK")
attempt("vsock", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) and "LEAK")
attempt("TUN", lambda: open("/dev/net/tun", "r+b", 0) and "LEAK")
attempt("namespace", lambda: "refused" if ctypes.CDLL(None).unshare(0x50000000) else "LEAK") # CLONE_NEWUSER, CLONE_NEWNET
attempt("another namespace", lambda: "refused" if ctypes.CDLL(None).setns(os.open("/proc/1/ns/net", os.O_RDONLY), 0) else "LEAK")
attempt("source", bind, "20.1.0.2")
print(get("web.example", "web.example").split("\n")[-2])
`

// leaveOpen ends while its child holds a connection.
const leaveOpen = `
import os, socket, time
s = socket.create_connection(("web.example", 80))
s.sendall(b"GET /hold HTTP/1.1\r\nHost: web.example\r\n\r\n")
while b"x" not in s.recv(4096): pass
if os.fork() == 0:
    os.setsid()
    for fd in (0, 1, 2): os.close(fd)
    time.sleep(3600)
print("left", flush=True)
`

// surviveTheHelper holds a connection until it breaks, and then makes a new one.
const surviveTheHelper = `
import errno, socket, urllib.request
s = socket.create_connection(("web.example", 80))
s.sendall(b"GET /hold HTTP/1.1\r\nHost: web.example\r\n\r\n")
try:
    while s.recv(4096): pass
    print("closed")
except OSError as e:
    print(errno.errorcode[e.errno])
print(urllib.request.urlopen("http://web.example/").read().decode().strip())
`

// Hostile programs try every way around the rules, against a machine that lies to them.
func TestNetworkHostile(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	for name, field := range map[string]string{"online": "network_access: true", "offline": "network_access: false"} {
		writeSkill(t, dir, name, field, map[string]string{"scripts/escape.py": escapes, "scripts/leave.py": leaveOpen, "scripts/survive.py": surviveTheHelper})
	}
	d, outside, machine := startOnHostileInternet(t, dir, `
network: {allow: [web.example, rebind.example, mixed.example, mapped.example]}
`)
	outside.take()
	t.Run("escapes", func(t *testing.T) {
		d.t = t
		r := d.run(wall(script("online", "scripts/escape.py"), patience))
		r.wantExit(t, 0)
		out := r.stdout.String()
		if strings.Contains(strings.Replace(out, "hello, web.example\n", "", 1), "LEAK") || !strings.HasSuffix(out, "hello, web.example\n") {
			t.Errorf("got %s%s", out, r.stderr.String())
		}
		allowed := []string{"GET web.example at " + webAddress + ":80"}
		for _, seen := range outside.take() {
			if !slices.Contains(allowed, seen) {
				t.Errorf("reached the outside: %s", seen)
			}
		}
		if r.outcome.Evidence.NetworkDeniedCount < 20 {
			t.Errorf("refusals: got %d", r.outcome.Evidence.NetworkDeniedCount)
		}
	})
	t.Run("without a network nothing leaves", func(t *testing.T) {
		d.t = t
		r := d.run(wall(script("offline", "scripts/escape.py"), patience))
		if out := r.stdout.String(); strings.Contains(out, "LEAK") {
			t.Errorf("got %s", out)
		}
		r = d.run(script("offline", "scripts/survive.py"))
		if seen := outside.take(); len(seen) > 0 || r.outcome.GetExitCode() == 0 {
			t.Errorf("reached the outside: %q", seen)
		}
	})
	wait := func(t *testing.T, c chan struct{}, what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		select {
		case <-c:
		case <-ctx.Done():
			t.Fatal(what)
		}
	}
	t.Run("a child that keeps a connection", func(t *testing.T) {
		d.t = t
		d.run(script("online", "scripts/leave.py")).wantStdout(t, "left\n")
		wait(t, outside.held, "no connection came")
		wait(t, outside.freed, "the connection outlives its execution")
	})
	t.Run("the helper is killed", func(t *testing.T) {
		d.t = t
		before := helpers(t, machine)
		go func() {
			<-outside.held
			for _, pid := range before {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}()
		r := d.run(script("online", "scripts/survive.py"))
		r.wantStdout(t, "ECONNABORTED\nhello, web.example\n")
		wait(t, outside.freed, "the connection outlives its helper")
		if after := helpers(t, machine); len(before) != 1 || len(after) != 1 || before[0] == after[0] {
			t.Errorf("helpers: %v, then %v", before, after)
		}
	})
}
