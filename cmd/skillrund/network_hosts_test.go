package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/certtest"
)

// The hosts of a test with real servers. Each is a network namespace at the end of a cable that begins in the
// daemon's namespace. Debian's nginx serves HTTP and HTTPS on all of them but the name server's.
const (
	publicHost   = webAddress
	publicHost6  = "2600::1"
	otherHost    = "20.3.0.1"
	privateHost6 = "fd00:5::1"
	resolverHost = "20.1.0.53"
	liarHost     = "20.6.6.6" // the name server of evil.example, which only unbound asks
	silentHost   = "20.9.9.9" // never answers
	daemonHost6  = "2600::2"
)

type hosts struct {
	dir     string
	machine *namespace // the daemon's
	public  *namespace
	pair    *certtest.Pair
	cables  int
	servers map[string]webServer
	rebound atomic.Bool // rebind.evil.example has a private address now
}

// A webServer is an nginx.
type webServer struct {
	n       *namespace
	address string
}

// startHosts starts the hosts and their servers. dir/www has the files of the public web server.
func startHosts(t *testing.T, dir string) *hosts {
	t.Helper()
	h := &hosts{dir: dir, machine: newNamespace(t), servers: map[string]webServer{}}
	authority := certtest.NewAuthority(t, "authority of the test")
	authority.WriteRoots(filepath.Join(dir, "ca.pem"))
	h.pair = authority.Client("server", func(c *x509.Certificate) {
		for _, line := range namesOfHosts {
			name, _, _ := strings.Cut(line, " ")
			c.DNSNames = append(c.DNSNames, name)
		}
		c.DNSNames, c.ExtKeyUsage = append(c.DNSNames, "rebind.evil.example"), []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	h.public = h.host(t, publicHost, publicHost6)
	h.startNginx(t, h.public, "public", publicHost, "["+publicHost6+"]")
	h.startNginx(t, h.host(t, otherHost), "other", otherHost)
	h.startNginx(t, h.host(t, privateHost, privateHost6), "private", privateHost, "["+privateHost6+"]")
	h.startNginx(t, h.host(t, metadataHost), "metadata", metadataHost)
	names := h.host(t, resolverHost)
	h.startLiar(t, names)
	h.startUnbound(t, names)
	return h
}

// host makes a namespace with these addresses, which the daemon's namespace reaches.
func (h *hosts) host(t *testing.T, addresses ...string) *namespace {
	t.Helper()
	n := newNamespace(t)
	cable := fmt.Sprintf("host%d", h.cables)
	h.cables++
	file, err := os.Open(n.path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	h.machine.do(t, func() error {
		err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: cable}, PeerName: "eth0", PeerNamespace: netlink.NsFd(file.Fd())})
		return errors.Join(err, plug(cable, []string{daemonAddress, daemonHost6}, addresses))
	})
	n.do(t, func() error { return plug("eth0", addresses, []string{daemonAddress, daemonHost6}) })
	return n
}

// plug gives an interface addresses, and routes to the addresses at the other end.
func plug(name string, own, peers []string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range own {
		address := &netlink.Addr{IPNet: single(a), Flags: unix.IFA_F_NODAD}
		err = errors.Join(err, netlink.AddrAdd(link, address))
	}
	err = errors.Join(err, netlink.LinkSetUp(link))
	for _, a := range peers {
		err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: single(a), Scope: netlink.SCOPE_LINK}))
	}
	return err
}

// single is the network of one address.
func single(address string) *net.IPNet {
	ip := net.ParseIP(address)
	if v4 := ip.To4(); v4 != nil {
		ip = v4
	}
	return &net.IPNet{IP: ip, Mask: net.CIDRMask(8*len(ip), 8*len(ip))}
}

// startNginx starts a web server. It answers requests for / with its own name, the Host and the version of HTTP.
func (h *hosts) startNginx(t *testing.T, n *namespace, name string, addresses ...string) {
	t.Helper()
	work := filepath.Join(h.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Join(work, "tmp"), 0o755), os.MkdirAll(filepath.Join(h.dir, "www"), 0o755)); err != nil {
		t.Fatal(err)
	}
	certificate, key := h.pair.Write(work, "server")
	var listen string
	for _, a := range addresses {
		listen += fmt.Sprintf("listen %[1]s:80; listen %[1]s:443 ssl http2; listen %[1]s:8443 ssl http2;\n", a)
	}
	config := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr notice;
events {}
http {
  log_format seen '$server_addr:$server_port $host $server_protocol $request_uri';
  access_log %[1]s/seen seen;
  client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
  default_type application/octet-stream;
  types { text/html html; application/json json; }
  ssl_certificate %[2]s; ssl_certificate_key %[3]s;
  server {
    %[4]s
    root %[5]s/www; index index.html index.json;
    location = / { default_type text/plain; return 200 "%[6]s $host $server_protocol $http_authorization\n"; }
  }
}`, work, certificate, key, listen, h.dir, name)
	file := filepath.Join(work, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	h.servers[name] = webServer{n, addresses[0]}
	startServer(t, n, filepath.Join(work, "log"), "event method", "nginx", "-p", work, "-c", file)
}

// seen returns the requests that the web server of a host got since the last call. nginx writes to its log after it
// has answered, one request after the other. So seen sends a request itself, and waits for it in the log.
func (h *hosts) seen(t *testing.T, name string) (text string) {
	t.Helper()
	const mark = "/seen-until-here"
	server := h.servers[name]
	server.n.do(t, func() error {
		c, err := net.Dial("tcp", net.JoinHostPort(server.address, "80"))
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET "+mark+" HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		_, err = io.ReadAll(c)
		return err
	})
	path := filepath.Join(h.dir, name, "seen")
	until(t, "no mark in "+path, func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = string(b)
		return strings.HasSuffix(text, mark+"\n")
	})
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	return text[:strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1]
}

// startServer starts a program from .tools in a namespace, and waits for a text in its log.
func startServer(t *testing.T, n *namespace, log, ready, program string, args ...string) {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(debianProgram(t, program), args...)
	cmd.Stdout, cmd.Stderr = out, out
	n.do(t, cmd.Start)
	exited := make(chan struct{})
	go func() { defer close(exited); cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-exited
		if text, _ := os.ReadFile(log); t.Failed() {
			t.Logf("log of %s:\n%s", log, tail(string(text), 2000))
		}
	})
	until(t, program+" does not start", func() bool {
		select {
		case <-exited:
			t.Fatalf("%s ended", program)
		default:
		}
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), ready)
	})
}

// debianProgram returns the path of a program that make packages-test takes from a Debian package.
func debianProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../.tools/" + name)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil && testing.Short() {
		t.Skipf("needs a package of Debian: %v", err)
	} else if err != nil {
		t.Fatalf("%v: run make packages-test", err)
	}
	return path
}
