package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The internet of a test: a network namespace with one machine, which is a web server and a name server.
// Its address is public, but leads here only from the daemon's namespace.
const (
	webAddress    = "20.1.0.1"
	daemonAddress = "20.1.0.2"
)

// A namespace is a network namespace with a thread in it.
type namespace struct {
	path string // for nsenter
	jobs chan func()
}

// newNamespace makes a namespace whose loopback is up. It ends with the test.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{jobs: make(chan func())}
	made := make(chan error)
	var file *os.File
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		made <- err
		for job := range n.jobs {
			job()
		}
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	n.path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd())
	t.Cleanup(func() { close(n.jobs); file.Close() })
	n.do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	return n
}

// do calls f on a thread of the namespace.
func (n *namespace) do(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	n.jobs <- func() { done <- f() }
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// connect connects two namespaces by a veth pair.
func connect(t *testing.T, a *namespace, addressA string, b *namespace, addressB string) {
	t.Helper()
	file, err := os.Open(b.path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	a.do(t, func() error {
		return errors.Join(
			netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "veth0", PeerNamespace: netlink.NsFd(file.Fd())}),
			setUp(addressA))
	})
	b.do(t, func() error { return setUp(addressB) })
}

func setUp(cidr string) error {
	link, err := netlink.LinkByName("veth0")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(link, address), netlink.LinkSetUp(link))
}

// serveWeb starts the web server and the name server. Every name below example has the web server's
// address, except for private.example.
func serveWeb(t *testing.T, n *namespace) {
	t.Helper()
	var l net.Listener
	var packets net.PacketConn
	n.do(t, func() (err error) {
		if l, err = net.Listen("tcp", webAddress+":80"); err == nil {
			packets, err = net.ListenPacket("udp", webAddress+":53")
		}
		return err
	})
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello, %s\n", r.Host) })}
	go web.Serve(l)
	names := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		address := webAddress
		if q.Question[0].Name == "private.example." {
			address = "10.0.0.1"
		}
		if q.Question[0].Qtype == dns.TypeA {
			a.Answer = append(a.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(address)})
		}
		_ = w.WriteMsg(a)
	})}
	go names.ActivateAndServe()
	t.Cleanup(func() { web.Close(); names.Shutdown() })
}

// launchIn starts a daemon in a network namespace. Its resolver is the machine of the internet.
func launchIn(t *testing.T, dir, extra string, machine *namespace) *running {
	t.Helper()
	resolv := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+webAddress+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := launch(t, dir, extra, "/bin/sh", "-c", `mount --make-rprivate / && mount --bind "$1" /etc/resolv.conf && shift && exec nsenter --net="$@"`, "sh", resolv, machine.path, "--")
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	return d
}

// startOnInternet starts a daemon in a network namespace with the internet of a test.
func startOnInternet(t *testing.T, dir, extra string) *running {
	t.Helper()
	internet, machine := newNamespace(t), newNamespace(t)
	connect(t, machine, daemonAddress+"/24", internet, webAddress+"/24")
	serveWeb(t, internet)
	return launchIn(t, dir, extra, machine)
}

// ask asks for each URL, and prints the answer or the error.
const ask = `import sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=60).read().decode().strip())
    except OSError as e:
        print(url, getattr(e, "reason", e))
`

// A skill's program reaches the destinations that the rules allow. A refusal comes at once, and its event
// has the rule that would allow it. curl, the record, the command line and the Python client agree.
func TestNetworkOfAnExecution(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "online", "network_access: true", map[string]string{"scripts/ask.py": ask})
	writeSkill(t, dir, "named", "", map[string]string{"scripts/ask.py": ask})
	writeSkill(t, dir, "offline", "", map[string]string{"scripts/ask.py": ask})
	d := startOnInternet(t, dir, `
network:
  allow: [web.example, private.example, "20.1.0.1:8080"]
  "skills": {named: {allow: [public]}}
`)
	t.Run("allowed by name", func(t *testing.T) {
		d.t = t
		r := d.run(script("online", "scripts/ask.py", "http://web.example/"))
		r.wantStdout(t, "hello, web.example\n")
		if h := r.header.NetworkRules; !slices.Equal(h.GetAllow(), []string{"web.example", "private.example", "20.1.0.1:8080"}) {
			t.Errorf("header: %v", h)
		}
		u := r.outcome.Usage.Network
		if u.GetConnectionCount() != 1 || len(u.GetConnections()) != 1 || u.Connections[0].Name != "web.example" || u.Connections[0].Address != webAddress ||
			u.Connections[0].Port != 80 || u.SentBytes == 0 || u.ReceivedBytes == 0 || r.outcome.Evidence.NetworkDeniedCount != 0 {
			t.Errorf("usage: %v, evidence: %v", u, r.outcome.Evidence)
		}
	})
	for _, tt := range []struct{ name, url, out, protocol, address, rule, missing string }{
		{"metadata", "http://169.254.169.254/latest/", "Connection refused", "tcp", "169.254.169.254", "link-local", "169.254.169.254:80"},
		{"the machine itself", "http://" + daemonAddress + "/", "Connection refused", "tcp", daemonAddress, "own", daemonAddress + ":80"},
		{"an address without its name", "http://" + webAddress + "/", "Connection refused", "tcp", webAddress, "", webAddress + ":80"},
		{"another name", "http://other.example/", "", "dns", "", "", "other.example"},
		{"a name of a private address", "http://private.example/", "", "dns", "10.0.0.1", "private", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.t = t
			r := d.run(script("online", "scripts/ask.py", tt.url))
			if out := r.stdout.String(); !strings.Contains(out, tt.out) || strings.Contains(out, "hello") {
				t.Errorf("got %q", out)
			}
			var denied []*pb.NetworkDenial
			for _, e := range r.events {
				if e.GetDenied() != nil {
					denied = append(denied, e.GetDenied())
				}
			}
			if len(denied) == 0 || r.outcome.Evidence.NetworkDeniedCount < uint64(len(denied)) || len(r.outcome.Usage.Network.GetDenials()) != len(denied) {
				t.Fatalf("denied %v, outcome %v", denied, r.outcome)
			}
			for _, got := range denied {
				if got.Protocol != tt.protocol || got.Address != tt.address || got.Rule != tt.rule || tt.missing != "" && got.MissingRule != tt.missing {
					t.Errorf("denied %v", got)
				}
			}
			if tt.missing != "" && !strings.Contains(r.outcome.Advice, `"`+tt.missing+`"`) {
				t.Errorf("advice %q", r.outcome.Advice)
			}
		})
	}
	t.Run("curl", func(t *testing.T) {
		d.t = t
		if _, err := exec.LookPath("/usr/bin/curl"); err != nil {
			t.Skip("curl is not installed")
		}
		d.run(shell("online", "curl -sS http://web.example/; curl -sS http://169.254.169.254/ 2>&1 | grep -c 'Failed to connect\\|Couldn.t connect'")).wantStdout(t, "hello, web.example\n1\n")
	})
	t.Run("named by the configuration", func(t *testing.T) {
		d.t = t
		d.run(script("named", "scripts/ask.py", "http://"+webAddress+"/", "http://other.example/")).wantStdout(t, "hello, "+webAddress+"\nhello, other.example\n")
	})
	t.Run("tightened by the request", func(t *testing.T) {
		d.t = t
		req := script("named", "scripts/ask.py", "http://web.example/", "http://other.example/")
		req.NetworkRules = &pb.NetworkRules{Allow: []string{"web.example"}}
		r := d.run(req)
		if out := r.stdout.String(); !strings.HasPrefix(out, "hello, web.example\nhttp://other.example/ ") || r.outcome.Evidence.NetworkDeniedCount == 0 {
			t.Errorf("got %q", out)
		}
	})
	t.Run("neither asked nor named", func(t *testing.T) {
		d.t = t
		r := d.run(script("offline", "scripts/ask.py", "http://"+webAddress+"/"))
		if out := r.stdout.String(); !strings.Contains(out, "Network is unreachable") || r.header.NetworkRules != nil || r.outcome.Usage.Network != nil {
			t.Errorf("got %q, header %v", out, r.header)
		}
	})
	t.Run("command line", func(t *testing.T) {
		d.t = t
		out, err := exec.Command(binary(t, "skillrun"), "--address", "unix://"+dir+"/s.sock", "run", "--network", "20.1.0.1:8080", "online", "scripts/ask.py", "http://169.254.169.254/").CombinedOutput()
		if err != nil || !strings.Contains(string(out), `denied: tcp 169.254.169.254:80, link-local; the rule "169.254.169.254:80" would allow it`) {
			t.Errorf("run: %v\n%s", err, out)
		}
		_, id, _ := strings.Cut(string(out), "execution ")
		id, _, _ = strings.Cut(id, ":")
		shown, err := exec.Command(binary(t, "skillrun"), "--address", "unix://"+dir+"/s.sock", "show", id).CombinedOutput()
		if err != nil || !strings.Contains(string(shown), "allow 20.1.0.1:8080") || !strings.Contains(string(shown), "tcp 169.254.169.254:80, link-local") {
			t.Errorf("show: %v\n%s", err, shown)
		}
	})
	d.t = t
	if mode := d.capabilities().Network; mode != pb.NetworkMode_NETWORK_MODE_RULES {
		t.Errorf("capabilities: %s", mode)
	}
}
