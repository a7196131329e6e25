package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// listenEverywhere listens on all of the sandbox's addresses, by TCP and UDP. It connects to its own sockets, and counts
// connections and packets from elsewhere until the test says so.
const listenEverywhere = `
import select, socket
control = socket.create_connection(("` + webAddress + `", 9000))
sockets = []
for family, any in (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"):
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        s = socket.socket(family, kind)
        if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind((any, 8099))
        if kind == socket.SOCK_STREAM: s.listen(64)
        sockets.append(s)

def take(wait):
    ready = select.select(sockets, [], [], None if wait else 0)[0]
    for s in ready: s.accept() if s.type == socket.SOCK_STREAM else s.recv(100)
    return len(ready)

own = 0
for to in "127.0.0.1", "192.0.0.2", "::1", "fd73:6b72::2":
    socket.create_connection((to, 8099)).close()
    own += take(True)
    socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM).sendto(b"own", (to, 8099))
    own += take(True)
control.sendall(b"x")
assert control.recv(1) == b"y"
others = 0
while n := take(False): others += n
print(own, "own,", others, "from others")
`

// reachEach tries to reach each address, and prints each address that answers.
const reachEach = `
import socket, sys
for to in sys.argv[1:]:
    try:
        socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM).sendto(b"attack", (to, 8099))
    except OSError: pass
    try:
        socket.create_connection((to, 8099), timeout=5)
        print("reached", to)
    except OSError: pass
print("tried")
`

// No peer reaches a port on which a sandbox listens: no other machine, which even has a route to the sandbox's
// address, not the daemon's machine, and no other sandbox, even if the rules allow all of these addresses.
func TestListeningSandboxIsNotReached(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "listener", "network_access: true", map[string]string{"scripts/listen.py": listenEverywhere})
	writeSkill(t, dir, "caller", "network_access: true", map[string]string{"scripts/call.py": reachEach})
	internet, machine := newNamespace(t), newNamespace(t)
	connect(t, machine, daemonAddress+"/24", internet, webAddress+"/24")
	serveWeb(t, internet)
	internet.do(t, func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: single("192.0.0.2"), Gw: net.ParseIP(daemonAddress)})
	})
	var control net.Listener
	internet.do(t, func() (err error) {
		control, err = net.Listen("tcp", webAddress+":9000")
		return err
	})
	defer control.Close()
	targets := []string{"192.0.0.2", "fd73:6b72::2", daemonAddress, "127.0.0.1", "::1"}
	var rules []string
	for _, to := range targets {
		if strings.Contains(to, ":") {
			to = "[" + to + "]"
		}
		rules = append(rules, `"`+to+`:8099"`, `"`+to+`:8099/udp"`)
	}
	d := launchIn(t, dir, `network: {allow: ["`+webAddress+`:9000", `+strings.Join(rules, ", ")+"]}\n", machine)

	type answer struct {
		r   *result
		err error
	}
	ended := make(chan answer, 1)
	go func() {
		r, err := d.try(wall(script("listener", "scripts/listen.py"), patience))
		control.Close() // ends Accept, if the program did not come
		ended <- answer{r, err}
	}()
	c, err := control.Accept()
	if err != nil {
		a := <-ended
		t.Fatalf("the listener did not come: %+v", a)
	}
	defer c.Close()
	if b, err := bufio.NewReader(c).ReadByte(); err != nil || b != 'x' {
		t.Fatalf("got %q, %v", b, err)
	}
	for name, n := range map[string]*namespace{"another machine": internet, "the daemon's machine": machine} {
		for _, to := range targets {
			to = net.JoinHostPort(to, "8099")
			n.do(t, func() error {
				if packets, err := net.Dial("udp", to); err == nil {
					_, _ = io.WriteString(packets, "attack")
					packets.Close()
				}
				if c, err := net.DialTimeout("tcp", to, time.Second); err == nil {
					c.Close()
					return errors.New(name + " reached " + to)
				}
				return nil
			})
		}
	}
	d.run(wall(script("caller", "scripts/call.py", targets...), patience)).wantStdout(t, "tried\n")
	if _, err := io.WriteString(c, "y"); err != nil {
		t.Error(err)
	}
	a := <-ended
	if a.err != nil {
		t.Fatal(a.err)
	}
	a.r.wantStdout(t, "8 own, 0 from others\n")
}
