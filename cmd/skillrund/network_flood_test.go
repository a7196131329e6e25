package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// flood opens many connections to a host that never answers. It goes on when the bound of its network is
// reached, and holds the sockets until the test says so. The sandbox's interface has room for 128 packets. So the
// program waits, after each 64 sockets, for an answer at its first connection: the packets before it have left.
const flood = `
import select, socket
control = socket.create_connection(("` + publicHost + `", 9000))
sockets, events = [], select.poll()
for i in range(900):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(("` + silentHost + `", 80))
    sockets.append(s)
    events.register(s, select.POLLOUT)
    if i % 64 == 63:
        control.sendall(b".")
        assert control.recv(1) == b"."
refused = 0
while refused < 900 - 255:
    for fd, _ in events.poll():
        events.unregister(fd)
        refused += 1
control.sendall(b"x")
assert control.recv(1) == b"y"
print("flooded")
`

// silence makes silentHost a host that gets packets and never answers.
func (h *hosts) silence(t *testing.T) {
	t.Helper()
	h.machine.do(t, func() error {
		link, err := netlink.LinkByName("host0")
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: single(silentHost), Scope: netlink.SCOPE_LINK}
		if err := netlink.RouteAdd(route); err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: net.ParseIP(silentHost),
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}, State: netlink.NUD_PERMANENT})
	})
}

// A program that opens as many connections as it can to a host that never answers is refused beyond the
// bound. During the flood another execution of the tenant has its network, and nothing is left after the end.
func TestNetworkFlood(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	h := startHosts(t, dir)
	h.silence(t)
	h.writeFetcher(t, "neighbour")
	writeSkill(t, dir, "hog", "network_access: true", map[string]string{"scripts/flood.py": flood})
	d := h.launch(t, `network: {allow: [web.example, "`+silentHost+`", "`+publicHost+`:9000"]}
`)
	var control net.Listener
	h.public.do(t, func() (err error) {
		control, err = net.Listen("tcp4", publicHost+":9000")
		return err
	})
	defer control.Close()
	fetched := make(chan string, 1)
	go func() {
		c, err := control.Accept()
		if err != nil {
			fetched <- fmt.Sprint(err)
			return
		}
		defer c.Close()
		if _, err := io.CopyN(c, c, 900/64); err != nil {
			fetched <- fmt.Sprint(err)
			return
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			fetched <- fmt.Sprint(err)
			return
		}
		r, err := d.try(script("neighbour", "scripts/fetch.sh", "https://web.example/"))
		if err != nil {
			fetched <- fmt.Sprint(err)
		} else {
			fetched <- r.stdout.String()
		}
		_, _ = io.WriteString(c, "y")
	}()
	r := d.run(wall(script("hog", "scripts/flood.py"), patience))
	control.Close() // ends Accept, if the program did not come
	r.wantStdout(t, "flooded\n")
	if got := <-fetched; got != "public web.example HTTP/2.0 \n" {
		t.Errorf("the neighbour: %s", got)
	}
	if got := reasons(r); !strings.Contains(strings.Join(got, "\n"), "more than 256 connections (network_limits.connections)") || r.outcome.Evidence.NetworkDeniedCount < 645 {
		t.Errorf("refusals: %d, %q", r.outcome.Evidence.NetworkDeniedCount, got)
	}
	untilNone(t, "connections are left", func() []string { return stillConnected(t, h.machine) })
}
