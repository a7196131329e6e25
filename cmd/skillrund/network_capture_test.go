package main

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// A capture has every frame of all interfaces of a network namespace.
type capture struct{ fd int }

func startCapture(t *testing.T, n *namespace) *capture {
	t.Helper()
	c := &capture{}
	n.do(t, func() (err error) {
		every := int(bits.ReverseBytes16(unix.ETH_P_ALL)) // in the order of the network
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, every); err != nil {
			return err
		}
		wait := unix.NsecToTimeval(patience.Nanoseconds())
		return errors.Join(unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
			unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
	})
	t.Cleanup(func() { unix.Close(c.fd) })
	return c
}

// until returns the frames before the one with the mark.
func (c *capture) until(t *testing.T, mark string) (all []string) {
	t.Helper()
	for buffer := make([]byte, 1<<16); ; {
		n, _, err := unix.Recvfrom(c.fd, buffer, 0)
		if err != nil {
			t.Fatalf("no %q: %v; before: %q", mark, err, all)
		}
		if strings.Contains(string(buffer[:n]), mark) {
			break
		}
		all = append(all, frame(buffer[:n]))
	}
	if s, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err != nil || s.Drops > 0 {
		t.Fatalf("the capture lost frames: %+v, %v", s, err)
	}
	return all
}

// frame describes a frame of Ethernet.
func frame(b []byte) string {
	if len(b) < 34 || b[12] != 8 || b[13] != 0 {
		return fmt.Sprintf("%x", b)
	}
	from, to := netip.AddrFrom4([4]byte(b[26:30])), netip.AddrFrom4([4]byte(b[30:34]))
	return fmt.Sprintf("protocol %d from %s to %s", b[23], from, to)
}

// quietCable connects the namespaces so that the kernel sends only the packets of programs: it has no IPv6, and knows
// the other end's hardware address.
func quietCable(t *testing.T, machine, outside *namespace) {
	t.Helper()
	for _, n := range []*namespace{machine, outside} {
		n.do(t, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0) })
	}
	connect(t, machine, daemonAddress+"/24", outside, webAddress+"/24")
	hardware := func(n *namespace) (a net.HardwareAddr) {
		n.do(t, func() error {
			link, err := netlink.LinkByName("veth0")
			if err == nil {
				a = link.Attrs().HardwareAddr
			}
			return err
		})
		return a
	}
	know := func(n *namespace, address string, a net.HardwareAddr) {
		n.do(t, func() error {
			link, err := netlink.LinkByName("veth0")
			if err != nil {
				return err
			}
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: net.ParseIP(address), HardwareAddr: a, State: netlink.NUD_PERMANENT})
		})
	}
	know(machine, webAddress, hardware(outside))
	know(outside, daemonAddress, hardware(machine))
}

// stillConnected returns the lines of the kernel's table of TCP sockets that may still send. It leaves out sockets that
// listen or are in TIME_WAIT.
func stillConnected(t *testing.T, n *namespace) (all []string) {
	t.Helper()
	n.do(t, func() error {
		text, err := os.ReadFile("/proc/thread-self/net/tcp")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[0] != "sl" && f[3] != "06" && f[3] != "0A" {
				all = append(all, line)
			}
		}
		return err
	})
	return all
}

// Programs without a network try every way out that the others know. A capture of the daemon's network has not
// one frame of them, also after an execution with a network, when the tenant's helper runs and prewarmed
// sandboxes have interfaces.
func TestNoNetworkNoPackets(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	files := map[string]string{"scripts/escape.py": escapes, "scripts/ask.py": ask}
	writeSkill(t, dir, "online", "network_access: true", files)
	writeSkill(t, dir, "offline", "network_access: false", files)
	outside, machine := newNamespace(t), newNamespace(t)
	quietCable(t, machine, outside)
	serveWeb(t, outside)
	var marks net.PacketConn
	outside.do(t, func() (err error) {
		marks, err = net.ListenPacket("udp4", webAddress+":9")
		return err
	})
	t.Cleanup(func() { marks.Close() })
	c := startCapture(t, machine)
	// sent returns the frames since its last call.
	calls := 0
	sent := func(t *testing.T) []string {
		t.Helper()
		calls++
		mark := fmt.Sprintf("mark %d.", calls)
		machine.do(t, func() error {
			conn, err := net.Dial("udp4", webAddress+":9")
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write([]byte(mark))
			return err
		})
		return c.until(t, mark)
	}
	d := launchIn(t, dir, "network: {allow: [public]}\n", machine)
	offline := func(t *testing.T) {
		d.t = t
		sent(t)
		r := d.run(wall(script("offline", "scripts/escape.py"), patience))
		if out := r.stdout.String(); strings.Contains(out, "LEAK") || strings.Count(out, "\n") < 30 {
			t.Errorf("got %s", out)
		}
		d.run(shell("offline", "getent hosts web.example; curl -sS http://web.example/ http://"+webAddress+"/; echo x >/dev/udp/"+webAddress+"/53; true"))
		without := script("online", "scripts/ask.py", "http://web.example/", "http://"+webAddress+"/")
		without.NetworkRules = &pb.NetworkRules{Allow: []string{"none"}}
		if r := d.run(without); r.header.NetworkRules != nil || strings.Contains(r.stdout.String(), "hello") {
			t.Errorf("header %v, output %q", r.header, r.stdout.String())
		}
		if got := sent(t); len(got) > 0 {
			t.Errorf("%d frames: %q", len(got), got)
		}
	}
	t.Run("before any network", func(t *testing.T) {
		offline(t)
		if got := helpers(t, machine); len(got) > 0 {
			t.Errorf("helpers: %v", got)
		}
	})
	t.Run("a network", func(t *testing.T) {
		d.t = t
		d.run(script("online", "scripts/ask.py", "http://web.example/")).wantStdout(t, "hello, web.example\n")
		untilNone(t, "connected", func() []string { return append(stillConnected(t, machine), stillConnected(t, outside)...) })
		got := sent(t)
		for _, want := range []string{"protocol 17 from " + daemonAddress + " to " + webAddress, "protocol 6 from " + daemonAddress + " to " + webAddress} {
			if !slices.Contains(got, want) {
				t.Errorf("the capture has no frame %q: %q", want, got)
			}
		}
	})
	t.Run("beside a network", func(t *testing.T) {
		offline(t)
		if got := helpers(t, machine); len(got) != 1 {
			t.Errorf("helpers: %v", got)
		}
	})
}
