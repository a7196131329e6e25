package gateway

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// testPorts is the last port that a test has taken. Each test takes new ports, because a port may be busy for a minute
// after a test.
var testPorts = uint16(40000)

// newPorts returns the first of three ports.
func newPorts() uint16 {
	testPorts += 3
	return testPorts - 2
}

// reserving gives a tenant one common port and one reserved port.
func reserving(common, reserve uint16) func(*Config) {
	return func(c *Config) {
		c.Shared = NewShared(policy.DefaultTenantLimits(), dial.Ports{Common: dial.PortRange{First: common, Last: common}, Reserve: dial.PortRange{First: reserve, Last: reserve}})
	}
}

func isPortEvent(d policy.Denial) bool { return strings.Contains(d.Reason, "no free port") }

// needsPortRange skips the test on Linux before 6.3.
func needsPortRange(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, 0); err != nil {
		t.Skip("the kernel has no IP_LOCAL_PORT_RANGE: ", err)
	}
}

// If a tenant uses up its ports for a destination, other tenants still have ports. A port stays busy (TIME_WAIT) if the
// client ends the connection first. The refusal of a further connection is an event.
func TestPorts(t *testing.T) {
	needsPortRange(t)
	for name, host := range map[string]string{"IPv4": networktest.Public, "IPv6": networktest.Public6} {
		t.Run(name, func(t *testing.T) {
			address := net.JoinHostPort(host, "80")
			froms := make(chan string, 10)
			networktest.Serve(t, address, func(c net.Conn) {
				froms <- c.RemoteAddr().(*net.TCPAddr).AddrPort().String()
				echo(c)
			})
			port := newPorts()
			greedy, other := newBox(t, nil, nil, reserving(port, port+1)), newBox(t, nil, nil, reserving(port, port+2))
			for n, want := range []uint16{port, port + 1} {
				c, err := greedy.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				c.Close()
				await(t, greedy.log, func() (bool, bool) { return true, len(greedy.closed) == n+1 })
				if from := netip.MustParseAddrPort(<-froms); from.Port() != want {
					t.Errorf("connection %d has the local port %d, want %d", n, from.Port(), want)
				}
			}
			if _, err := greedy.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("without a port: %v", err)
			}
			greedy.awaitDenial(t, isPortEvent)
			c, err := other.Dial("tcp", address)
			if err != nil {
				t.Fatal("the other tenant: ", err)
			}
			c.Close()
			<-froms
		})
	}
}

// UDP and the questions to resolvers use the ports of the tenant, too.
func TestPortsOfPackets(t *testing.T) {
	needsPortRange(t)
	newZone(t)
	serveUDP(t, networktest.Public+":7000")
	port := newPorts()
	b := newBox(t, []string{"public", "20.1.0.1:7000/udp"}, nil, reserving(port, port+1))
	for range 2 {
		c, err := b.Dial("udp", networktest.Public+":7000")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "x")
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	b.ask(t, "udp", "www.test", dns.TypeA)
	b.awaitDenial(t, func(d policy.Denial) bool { return isPortEvent(d) && d.Protocol == "dns" && d.Name == "www.test" })
}
