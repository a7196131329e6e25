package ingress

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// packetPair returns the sockets between two daemons.
func packetPair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return ends[0], ends[1]
}

// The next daemon gets the credentials that the earlier one has, and bytes in both directions.
func TestForward(t *testing.T) {
	ours, theirs := packetPair(t)
	l := Listen(Forwarded(theirs), Limits{}, slog.New(slog.DiscardHandler))
	client, err := x509.ParseCertificate(certtest.NewAuthority(t, "an authority").Client("alice", nil).TLS().Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		from *Conn
	}{
		{"a user", &Conn{addr: identity.User{UID: 7, Groups: []uint32{8, 9}}}},
		{"root without groups", &Conn{addr: identity.User{}}},
		{"an address", &Conn{addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5}}},
		{"an address of IPv6", &Conn{addr: &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 5, Zone: "eth0"}}},
		{"TLS without a certificate", &Conn{addr: &net.TCPAddr{IP: net.IPv6loopback}, forwardedTLS: &tls.ConnectionState{HandshakeComplete: true}}},
		{"a certificate", &Conn{addr: &net.TCPAddr{IP: net.IPv6loopback}, forwardedTLS: &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{client}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mine, err := c.from.Forward(ours)
			if err != nil {
				t.Fatal(err)
			}
			defer mine.Close()
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer accepted.Close()
			got, want := accepted.(*Conn).Credentials(nil), c.from.Credentials(nil)
			if user, ok := got.Addr.(identity.User); ok {
				user.Addr = nil
				got.Addr = user
			}
			gotAddr, wantAddr := got.Addr, want.Addr
			if tcp, ok := wantAddr.(*net.TCPAddr); ok {
				gotAddr, wantAddr = fixed{gotAddr.String()}, fixed{tcp.String()}
			}
			if !reflect.DeepEqual(gotAddr, wantAddr) || !reflect.DeepEqual(got.TLS, want.TLS) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if accepted.(*Conn).From() != c.from.From() || accepted.(*Conn).Peer() != peerName(c.from.addr) {
				t.Errorf("from %s, peer %s", accepted.(*Conn).From(), accepted.(*Conn).Peer())
			}
			for from, to := range map[net.Conn]net.Conn{mine: accepted, accepted: mine} {
				if _, err := from.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(to, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if _, err := (&Conn{addr: identity.User{Err: errors.New("not known")}}).Forward(ours); err == nil {
		t.Error("a connection without a known user was forwarded")
	}
	// The earlier daemon ends.
	ours.Close()
	if _, err := l.Accept(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}

// fixed is the text of an address, whose bytes can have two forms.
type fixed struct{ text string }

func (f fixed) Network() string { return "" }
func (f fixed) String() string  { return f.text }

// A packet that describes no caller gives no connection. The next packet does.
func TestForwardedNeedsOneCaller(t *testing.T) {
	ours, theirs := packetPair(t)
	l := Listen(Forwarded(theirs), Limits{}, slog.New(slog.DiscardHandler))
	send := func(description []byte, fds ...int) {
		t.Helper()
		if _, _, err := ours.WriteMsgUnix(description, unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := packetPair(t)
	file, err := a.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd := int(file.Fd()) // any descriptor of a connection
	good, err := json.Marshal(forwarded{User: &forwardedUser{UID: 7}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", "{}", `{"User":{"UID":1},"Address":{"IP":"::1"}}`, `{"User":{"UID":1},"TLS":true,"Certificates":["AAAA"]}`} {
		send([]byte(text+" "), fd)
	}
	if _, err := ours.Write(good); err != nil { // no descriptor
		t.Fatal(err)
	}
	send(good, fd, fd)
	send(good, fd)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.(*Conn).From(); got != "uid:7" {
		t.Errorf("got %s", got)
	}
}

// A description that comes over a listener for callers has no effect.
func TestForwardedOverPublicSocket(t *testing.T) {
	inner, _ := unixListener(t)
	l := Listen(inner, Limits{}, slog.New(slog.DiscardHandler))
	caller := call(t, l).(*net.UnixConn)
	if _, _, err := caller.WriteMsgUnix([]byte(`{"User":{"UID":12345}}`), unix.UnixRights(0), nil); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if user := c.(*Conn).Credentials(nil).Addr.(identity.User); int(user.UID) != os.Getuid() || c.(*Conn).TLS() != nil {
		t.Errorf("got %+v", user)
	}
}

// The listener of the earlier daemon has limited the connections that it forwards.
func TestForwardedHaveNoLimit(t *testing.T) {
	ours, theirs := packetPair(t)
	l := Listen(Forwarded(theirs), Limits{Connections: 1, PeerConnections: 1}, slog.New(slog.DiscardHandler))
	for range MaxPeerUnidentified + 1 {
		mine, err := (&Conn{addr: identity.User{UID: 7}}).Forward(ours)
		if err != nil {
			t.Fatal(err)
		}
		defer mine.Close()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		defer c.(*Conn).Begin()()
	}
	for c := range l.open {
		if err := c.Identified("acme"); err != nil {
			t.Fatal(err)
		}
	}
}
