package gateway

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/network/dial"
	"github.com/skillrun/skillrun/internal/network/networktest"
)

// pieces writes size bytes in pieces of different sizes, and returns their hash.
func pieces(c net.Conn, seed byte, size int) ([sha256.Size]byte, error) {
	random := rand.NewChaCha8([32]byte{seed})
	sizes := rand.New(rand.NewPCG(uint64(seed), 1))
	data := make([]byte, size)
	_, _ = random.Read(data)
	for rest := data; len(rest) > 0; {
		n := min(1+sizes.IntN(1<<sizes.IntN(19)), len(rest))
		if _, err := c.Write(rest[:n]); err != nil {
			return [sha256.Size]byte{}, err
		}
		rest = rest[n:]
	}
	return sha256.Sum256(data), c.(interface{ CloseWrite() error }).CloseWrite()
}

// hashed reads to the end in pieces of different sizes, and returns the hash.
func hashed(c net.Conn, seed byte) (sum [sha256.Size]byte, err error) {
	sizes := rand.New(rand.NewPCG(uint64(seed), 2))
	h := sha256.New()
	for b := make([]byte, 1<<18); err == nil; {
		var n int
		n, err = c.Read(b[:1+sizes.IntN(1<<sizes.IntN(19))])
		h.Write(b[:n])
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	h.Sum(sum[:0])
	return sum, err
}

// Many bytes arrive whole in both directions at the same time, whatever the pieces: over a direct connection, one whose
// names are checked, and through proxies.
func TestDataIsWhole(t *testing.T) {
	const size = 6 << 20
	newZone(t)
	authority := certtest.NewAuthority(t, "authority of the proxy")
	pair := authority.Server("proxy").TLS()
	for name, change := range map[string]func(*Config){
		"direct": func(*Config) {},
		"proxy":  through(),
		"proxy with TLS": through(func(p *dial.Proxy) {
			p.Secure, p.Name, p.CA = true, "localhost", string(authority.PEM())
		}),
	} {
		for _, rule := range []string{"public:7000", "www.test:7000"} {
			t.Run(name+" "+rule, func(t *testing.T) {
				type end struct {
					sent, received [sha256.Size]byte
					err            error
				}
				both := func(c net.Conn, seed byte) (e end) {
					sent := make(chan end, 1)
					go func() {
						sum, err := pieces(c, seed, size)
						sent <- end{sent: sum, err: err}
					}()
					e.received, e.err = hashed(c, seed)
					s := <-sent
					e.sent, e.err = s.sent, errors.Join(e.err, s.err)
					return e
				}
				outside := make(chan end, 1)
				networktest.Serve(t, networktest.Public+":7000", func(c net.Conn) { outside <- both(c, 1) })
				p := &connector{}
				networktest.Serve(t, proxyAddress, func(c net.Conn) {
					if name == "proxy with TLS" {
						c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
					}
					p.handle(c)
				})
				b := newBox(t, []string{rule}, nil, change)
				inside := both(b.dialNamed(t, "7000", "www.test"), 2)
				out := <-outside
				if err := errors.Join(inside.err, out.err); err != nil {
					t.Fatal(err)
				}
				if inside.sent != out.received || out.sent != inside.received {
					t.Error("bytes are lost or changed")
				}
				if e := b.awaitClosed(t); e.Sent != size || e.Received != size {
					t.Errorf("counted %d and %d bytes, want %d", e.Sent, e.Received, size)
				}
			})
		}
	}
}

// Urgent data of a server is left out, as on any connection. The data around it arrives.
func TestUrgentData(t *testing.T) {
	const address = networktest.Public + ":7000"
	networktest.Serve(t, address, func(c net.Conn) {
		socket, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Error(err)
			return
		}
		one := make([]byte, 1)
		for _, part := range []string{"a", "!", "b", "!", "c"} {
			if _, err := io.ReadFull(c, one); err != nil { // the client has the part before
				t.Error(err)
			}
			flags := 0
			if part == "!" {
				flags = unix.MSG_OOB
			}
			_ = socket.Control(func(fd uintptr) { err = unix.Send(int(fd), []byte(part), flags) })
			if err != nil {
				t.Error(err)
			}
		}
	})
	b := newBox(t, []string{"public:7000"}, nil)
	c, err := b.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []byte
	for _, ask := range []string{"1", "23", "45"} {
		one := make([]byte, 1)
		if _, err := io.WriteString(c, ask); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, one); err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, one...)
	}
	if string(got) != "abc" {
		t.Errorf("got %q", got)
	}
}

// A reset before the server's first byte stays a reset, also if the Gateway looks at this byte.
func TestResetBeforeTheFirstByte(t *testing.T) {
	newZone(t)
	networktest.Serve(t, networktest.Public+":7000", func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	for _, rule := range []string{"public:7000", "www.test:7000"} {
		b := newBox(t, []string{rule}, nil)
		c := b.dialNamed(t, "7000", "www.test")
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: got %v", rule, err)
		}
	}
}

// Connections whose both sides write and do not read end with the Gateway, with a reset.
func TestCloseWhileNobodyReads(t *testing.T) {
	const address = networktest.Public + ":7000"
	const size = 16 << 20 // more than all buffers on the way
	started, ended := make(chan struct{}, 1), make(chan error, 1)
	networktest.Serve(t, address, func(c net.Conn) {
		started <- struct{}{}
		_, err := c.Write(make([]byte, size))
		ended <- err
	})
	b := newBox(t, []string{"public:7000"}, nil)
	c, err := b.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-started
	if err := writeUntilFull(c); err != nil {
		t.Fatal(err)
	}
	b.gateway.Close()
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("outside: %v", err)
	}
	if n := b.gateway.entries.own.used.Load(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// writeUntilFull writes until the kernel takes no more.
func writeUntilFull(c net.Conn) error {
	socket, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = socket.Control(func(fd uintptr) {
		for block := make([]byte, 64<<10); failed == nil; {
			_, failed = unix.Write(int(fd), block)
		}
	})
	if !errors.Is(failed, unix.EAGAIN) {
		return fmt.Errorf("got %v, want a full buffer", failed)
	}
	return err
}
