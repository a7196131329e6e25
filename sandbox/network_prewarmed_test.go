package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/sandbox/internal/netdev"
)

// A prewarmed sandbox has its interface before its program is known. Until then it reaches nothing:
// packets get no further than the device, and no process reads them.
func TestPrewarmedNetworkReachesNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec Spec
	}{
		{"executed", Spec{Program: command("/usr/bin/true"), Env: testEnv}},
		{"forked", pythonSpec(nil, "-c", "")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := openForkServer(t)
			s := tt.spec
			s.Network = &testNetwork{}
			c := waitForDevice(t, h, s)
			connectFrom(t, c.netns)
			if n := readPackets(t, c.device.tun); n == 0 {
				t.Error("no packet is in the device")
			}
			if _, ok := c.spec.Network.(unassigned); !ok {
				t.Errorf("the sandbox that waits has the network %T", c.spec.Network)
			}
		})
	}
}

// waitForDevice asks for sandboxes like s until one waits, and returns it.
func waitForDevice(t *testing.T, h *Host, s Spec) *sandbox {
	t.Helper()
	run(t, h, s, "")
	if s.Python != nil {
		waitForReady(t, h, s)
	}
	key := s.withDefaults().profile()
	var found *sandbox
	until(t, "no sandbox with an interface waits", func() bool {
		h.pool.mu.Lock()
		defer h.pool.mu.Unlock()
		if s.Python != nil {
			key.python = h.pool.serving(s.pythonKey(), s.Caller)
		}
		if b := h.pool.buckets[key]; b != nil && len(b.waiting) > 0 {
			found = b.waiting[len(b.waiting)-1]
		}
		return found != nil
	})
	return found
}

// connectFrom begins connections to the outside and to the name server.
func connectFrom(t *testing.T, namespace *os.File) {
	t.Helper()
	err := netdev.In(namespace, func() error {
		for _, to := range []unix.Sockaddr{
			&unix.SockaddrInet4{Addr: [4]byte{198, 51, 100, 7}, Port: 80},
			&unix.SockaddrInet4{Addr: NameServerIPv4.As4(), Port: 53},
			&unix.SockaddrInet6{Addr: NameServerIPv6.As16(), Port: 53},
		} {
			family := unix.AF_INET
			if _, ok := to.(*unix.SockaddrInet6); ok {
				family = unix.AF_INET6
			}
			fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			t.Cleanup(func() { unix.Close(fd) })
			if err := unix.Connect(fd, to); !errors.Is(err, unix.EINPROGRESS) {
				t.Errorf("connect to %v: got %v, want a connection that waits", to, err)
			}
		}
		c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: NameServerIPv4.AsSlice(), Port: 53})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readPackets empties the device and returns the number of its packets.
func readPackets(t *testing.T, tun *os.File) (n int) {
	t.Helper()
	b := make([]byte, 1<<16)
	for {
		_, err := unix.Read(int(tun.Fd()), b)
		if errors.Is(err, unix.EAGAIN) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// A start with a network takes a prewarmed sandbox with an interface, and one without a network takes
// none of these.
func TestPrewarmedNetworkIsTaken(t *testing.T) {
	h := openPrewarmed(t)
	s := Spec{Program: command("python3", "-c", showNetwork), Env: testEnv, Network: &testNetwork{}}
	var made []*os.File
	for _, c := range prewarm(t, h, s, 2) {
		made = append(made, c.device.tun)
	}
	alone := s
	alone.Network = nil
	if got := run(t, h, alone, ""); !slices.Equal(sorted(got.stdout), sorted(seenAlone)) {
		t.Errorf("without a network: got %s%s", got.stdout, got.stderr)
	}
	n := &testNetwork{attach: func(_ context.Context, l Link) error {
		if !slices.Contains(made, l.TUN) {
			t.Error("the network has another interface than the sandboxes that waited")
		}
		return nil
	}}
	s.Network = n
	if got := run(t, h, s, ""); !slices.Equal(sorted(got.stdout), sorted(seenNetwork)) {
		t.Errorf("with a network: got %s%s", got.stdout, got.stderr)
	}
	n.got(t, "attach", "detach")
}

// If the network of a prewarmed sandbox can't be carried, its program does not start.
func TestPrewarmedNetworkFails(t *testing.T) {
	h := openPrewarmed(t)
	s := Spec{Program: command("/usr/bin/true"), Env: testEnv, Network: &testNetwork{}}
	prewarm(t, h, s, 1)
	refused := errors.New("no carrier")
	n := &testNetwork{attach: func(context.Context, Link) error { return refused }}
	s.ID, s.Network = "x", n
	if p, err := h.Start(t.Context(), s, IO{}); p != nil || !errors.Is(err, refused) {
		t.Errorf("got %v, %v, want the carrier's error", p, err)
	}
	n.got(t, "attach", "detach")
}

// The network that stands for the one of a later program carries nothing.
func TestUnassignedNetwork(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := (unassigned{}).Attach(t.Context(), Link{TUN: r}); err == nil {
		t.Error("it was attached")
	}
	if err := r.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the device is open: %v", err)
	}
	unassigned{}.Detach()
}
