package netdev

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// testNamespace returns a new network namespace in which loopback is up.
func testNamespace(t testing.TB) *os.File {
	t.Helper()
	if testing.Short() {
		t.Skip("makes network namespaces, which needs root: -short leaves it out")
	}
	ns, err := newNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

func nothing() error { return nil }

func mustMake(t testing.TB, ns *os.File) *os.File {
	t.Helper()
	f, err := Make(ns, nothing)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// The interface has exactly the two addresses, the MTU and the routes. Without a program, no packet is
// sent.
func TestMake(t *testing.T) {
	ns := testNamespace(t)
	f := mustMake(t, ns)
	err := In(ns, func() error {
		i, err := net.InterfaceByName(Name)
		if err != nil {
			return err
		}
		if i.MTU != MTU || i.Flags&net.FlagUp == 0 || i.Flags&net.FlagPointToPoint == 0 {
			t.Errorf("got %+v", i)
		}
		addrs, err := i.Addrs()
		if err != nil {
			return err
		}
		var got []string
		for _, a := range addrs {
			got = append(got, a.String())
		}
		if want := []string{"192.0.0.2/32", "fd73:6b72::2/128"}; !slices.Equal(got, want) {
			t.Errorf("addresses: got %q, want %q", got, want)
		}
		for file, want := range map[string]string{"/proc/thread-self/net/route": "eth0\t00000000\t00000000", "/proc/thread-self/net/ipv6_route": "eth0"} {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q:\n%s", file, want, text)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if n, err := unix.Read(int(f.Fd()), make([]byte, 1<<16)); n > 0 || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a packet before any program: %d bytes, error %v", n, err)
	}
}

// Connections of a program have the congestion control for a path on this machine, whatever the machine's default is.
func TestCongestionControl(t *testing.T) {
	if machine, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil && strings.TrimSpace(string(machine)) == congestion {
		t.Skip("the machine's default is " + congestion + ", too")
	}
	ns := testNamespace(t)
	mustMake(t, ns)
	to := map[int]unix.Sockaddr{
		unix.AF_INET:  &unix.SockaddrInet4{Port: 9, Addr: [4]byte{198, 51, 100, 7}},
		unix.AF_INET6: &unix.SockaddrInet6{Port: 9, Addr: netip.MustParseAddr("2001:db8::7").As16()},
	}
	err := In(ns, func() error {
		for family, address := range to {
			fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			// The kernel chooses when it sends the first packet.
			if err := unix.Connect(fd, address); err != unix.EINPROGRESS {
				return err
			}
			if got, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || got != congestion {
				t.Errorf("family %d: got %q, %v; want %q", family, got, err, congestion)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A packet that a socket sends to any address arrives at the file, and one from the file arrives at
// the socket.
func TestPackets(t *testing.T) {
	ns := testNamespace(t)
	f := mustMake(t, ns)
	for _, to := range []string{"198.51.100.7:9", "[2001:db8::7]:9"} {
		err := In(ns, func() error {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("hello"))
			return err
		})
		if err != nil {
			t.Fatal(to, err)
		}
		b := make([]byte, 1<<16)
		n, err := unix.Read(int(f.Fd()), b)
		if err != nil || !strings.HasSuffix(string(b[:n]), "hello") || n <= HeaderBytes {
			t.Errorf("%s: got %q, %v", to, b[:max(n, 0)], err)
		}
	}
}

// Packets to many addresses make no neighbour for each of them: all network namespaces share one table of neighbours.
func TestNeighbours(t *testing.T) {
	ns := testNamespace(t)
	f := mustMake(t, ns)
	const destinations = 64
	packet := make([]byte, 1<<16)
	for _, prefix := range []string{"2001:db8::", "fd00::", "fe80::", "ff02::", "ff05::", "ff0e::", "198.51.100.", "239.1.1."} {
		a := netip.MustParseAddr(prefix + "2")
		for range destinations {
			err := In(ns, func() error {
				fd, err := unix.Socket(int(family(a)), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				index, err := net.InterfaceByName(Name)
				if err != nil {
					return err
				}
				var to unix.Sockaddr = &unix.SockaddrInet4{Port: 9, Addr: [4]byte(a.AsSlice())}
				if a.Is6() {
					to = &unix.SockaddrInet6{Port: 9, Addr: a.As16(), ZoneId: uint32(index.Index)}
				}
				return unix.Sendto(fd, []byte("hello"), 0, to)
			})
			if err != nil {
				t.Fatal(a, err)
			}
			if n, err := unix.Read(int(f.Fd()), packet); err != nil || !strings.HasSuffix(string(packet[:n]), "hello") {
				t.Fatalf("%s: got %q, %v", a, packet[:max(n, 0)], err)
			}
			a = a.Next()
		}
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if n := neighbours(t, ns, byte(family)); n < 1 || n > 2 {
			t.Errorf("family %d: %d neighbours, want the gateway alone", family, n)
		}
	}
}

// neighbours counts the neighbours of the interface.
func neighbours(t *testing.T, ns *os.File, family byte) (n int) {
	t.Helper()
	err := In(ns, func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		index, err := c.index(Name)
		if err != nil {
			return err
		}
		// struct ndmsg: family, three bytes, the interface, two bytes of state, flags, type.
		list := message{kind: unix.RTM_GETNEIGH, flags: unix.NLM_F_DUMP, body: append([]byte{family}, make([]byte, 11)...)}
		if err := c.send([]message{list}); err != nil {
			return err
		}
		for {
			done, err := c.receive(func(h unix.NlMsghdr, body []byte) error {
				if h.Type != unix.RTM_NEWNEIGH || len(body) < 12 {
					return errAnswer
				}
				if int(native.Uint32(body[4:])) == index {
					n++
				}
				return nil
			})
			if done || err != nil {
				return err
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// When Make returns, both addresses can be used: a program may run at once.
func TestUsableAtOnce(t *testing.T) {
	for range 20 {
		ns := testNamespace(t)
		mustMake(t, ns)
		for _, a := range []netip.Addr{IPv4, IPv6} {
			err := In(ns, func() error {
				l, err := net.ListenUDP("udp", &net.UDPAddr{IP: a.AsSlice()})
				if err != nil {
					return err
				}
				defer l.Close()
				c, err := net.DialUDP("udp", nil, l.LocalAddr().(*net.UDPAddr))
				if err != nil {
					return err
				}
				defer c.Close()
				if _, err := c.Write([]byte("hello")); err != nil {
					return err
				}
				raw, err := l.SyscallConn()
				if err != nil {
					return err
				}
				var rerr error
				err = raw.Control(func(fd uintptr) { // without a wait: the kernel delivers it within the write
					_, _, rerr = unix.Recvfrom(int(fd), make([]byte, 10), unix.MSG_DONTWAIT)
				})
				return errors.Join(err, rerr)
			})
			if err != nil {
				t.Fatalf("%s: %v", a, err)
			}
		}
	}
}

func TestTry(t *testing.T) {
	testNamespace(t) // skips without root
	if err := Try(func() error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestMakeFails(t *testing.T) {
	ns := testNamespace(t)
	t.Run("twice", func(t *testing.T) {
		mustMake(t, ns)
		if f, err := Make(ns, nothing); f != nil || !errors.Is(err, unix.EBUSY) {
			t.Errorf("got %v, %v", f, err)
		}
	})
	t.Run("without the device", func(t *testing.T) {
		defer func(was string) { device = was }(device)
		device = "/dev/net/none"
		if f, err := Make(ns, nothing); f != nil || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, %v", f, err)
		}
		if err := Try(func() error { return nil }); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), device) {
			t.Errorf("try: got %v, want it to name the device", err)
		}
	})
	t.Run("what comes after", func(t *testing.T) {
		other, failed := testNamespace(t), errors.New("failed")
		if f, err := Make(other, func() error { return failed }); f != nil || err != failed {
			t.Errorf("got %v, %v", f, err)
		}
	})
	t.Run("in a file that is no namespace", func(t *testing.T) {
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		if f, err := Make(null, nothing); f != nil || !errors.Is(err, unix.EINVAL) {
			t.Errorf("got %v, %v", f, err)
		}
	})
	t.Run("beside another network", func(t *testing.T) {
		other := testNamespace(t)
		err := In(other, func() error {
			fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
			r, err := unix.NewIfreq("out")
			if err != nil {
				return err
			}
			r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
				return err
			}
			c, err := dial()
			if err != nil {
				return err
			}
			defer c.close()
			index, err := c.index("out")
			if err != nil {
				return err
			}
			return c.do([]message{up(index)})
		})
		if err != nil {
			t.Fatal(err)
		}
		if f, err := Make(other, nothing); f != nil || err == nil || !strings.Contains(err.Error(), "interface out") {
			t.Errorf("got %v, %v", f, err)
		}
	})
}

// After In, this process's threads are in its own namespace.
func TestInReturns(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	ns := testNamespace(t)
	failed := errors.New("f failed")
	for range 100 {
		if err := In(ns, func() error { return failed }); err != failed {
			t.Fatal(err)
		}
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if at, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net"); err == nil && at != before {
			t.Errorf("thread %s is in %s, want %s", task.Name(), at, before)
		}
	}
}

func TestMalformedAttributes(t *testing.T) {
	for _, tt := range []struct {
		name       string
		attributes []byte
		want       string
	}{
		{"none", nil, ""},
		{"short", []byte{1}, ""},
		{"too short a size", []byte{3, 0, unix.IFLA_IFNAME, 0}, ""},
		{"too long a size", []byte{200, 0, unix.IFLA_IFNAME, 0}, ""},
		{"second", append(attribute(nil, unix.IFLA_MTU, number(1)), attribute(nil, unix.IFLA_IFNAME, []byte("lo\x00"))...), "lo"},
	} {
		if got := nameOf(tt.attributes); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestMalformedAnswers(t *testing.T) {
	answer := func(size uint32, kind uint16, rest ...byte) []byte {
		b := native.AppendUint32(nil, size)
		b = native.AppendUint16(b, kind)
		return append(append(b, make([]byte, 10)...), rest...)
	}
	failed := errors.New("failed")
	for _, tt := range []struct {
		name   string
		packet []byte
		done   bool
		want   error
	}{
		{"nothing", nil, false, nil},
		{"short", make([]byte, 15), false, errAnswer},
		{"too short a size", answer(15, unix.NLMSG_ERROR), false, errAnswer},
		{"too long a size", answer(17, unix.NLMSG_ERROR), false, errAnswer},
		{"the end", answer(16, unix.NLMSG_DONE), true, nil},
		{"a message", answer(20, unix.NLMSG_ERROR, 1, 2, 3, 4), false, failed},
	} {
		done, err := parse(tt.packet, func(h unix.NlMsghdr, body []byte) error {
			if h.Type != unix.NLMSG_ERROR || len(body) != 4 {
				t.Errorf("%s: got %+v, %v", tt.name, h, body)
			}
			return failed
		})
		if done != tt.done || err != tt.want {
			t.Errorf("%s: got %t, %v, want %t, %v", tt.name, done, err, tt.done, tt.want)
		}
	}
}

// An answer of the kernel becomes an error that names the request.
func TestRefusals(t *testing.T) {
	ns := testNamespace(t)
	err := In(ns, func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		if _, err := c.index("none"); !errors.Is(err, unix.ENODEV) {
			t.Errorf("index: got %v", err)
		}
		if _, err := c.index("a name that is too long"); err == nil {
			t.Error("a long name has an index")
		}
		if err := c.do([]message{up(99), address(99, IPv4)}); !errors.Is(err, unix.ENODEV) || !strings.HasPrefix(err.Error(), "bring up: ") {
			t.Errorf("do: got %v", err)
		}
		if err := c.do([]message{{kind: unix.RTM_GETLINK, flags: unix.NLM_F_DUMP, body: link(0, 0)}}); err != errAnswer {
			t.Errorf("an answer of another kind: got %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// A namespace without the interface, and a socket that is closed.
	err = In(ns, func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		return c.checkUp()
	})
	if err == nil || !strings.Contains(err.Error(), "got 1, want lo and eth0") {
		t.Errorf("without the interface: got %v", err)
	}
	closed := &conn{fd: -1}
	if err := closed.do([]message{up(1)}); !errors.Is(err, unix.EBADF) {
		t.Errorf("do: got %v", err)
	}
	if err := closed.checkUp(); !errors.Is(err, unix.EBADF) {
		t.Errorf("checkUp: got %v", err)
	}
	if _, err := closed.receive(nil); !errors.Is(err, unix.EBADF) {
		t.Errorf("receive: got %v", err)
	}
}

func BenchmarkMake(b *testing.B) {
	for range b.N {
		b.StopTimer()
		ns := testNamespace(b)
		b.StartTimer()
		mustMake(b, ns)
	}
}
