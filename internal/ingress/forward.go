package ingress

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// In a takeover the earlier daemon forwards calls of its connections to the next daemon. For each connection with such a
// call it makes a pair of sockets, and sends one of them to the next daemon, with the facts about the caller that the
// kernel and TLS have told. There the socket is a connection of the same caller: package identity identifies the
// caller with the next daemon's own configuration. Only a process that has the socket between the daemons can send
// such a connection.

// A forwarded states a connection's credentials to the next daemon. Either User or Address is set.
type forwarded struct {
	User         *forwardedUser
	Address      *net.TCPAddr
	TLS          bool
	Certificates [][]byte // of the client, in DER
}

type forwardedUser struct {
	UID    uint32
	Groups []uint32
}

// maxForwarded bounds a description, in bytes. A handshake of TLS has at most 64 KiB of certificates.
const maxForwarded = 256 << 10

// forwardTimeout bounds the wait for room in the socket to the next daemon. A daemon that accepts no connection in this
// time has been stopped.
const forwardTimeout = 5 * time.Second

// Forward returns a new connection to the next daemon, which takes it for a connection of the same caller. next leads
// to a listener of Forwarded there.
func (c *Conn) Forward(next *net.UnixConn) (net.Conn, error) {
	var f forwarded
	switch addr := c.addr.(type) {
	case identity.User:
		if addr.Err != nil {
			return nil, addr.Err
		}
		f.User = &forwardedUser{addr.UID, addr.Groups}
	case *net.TCPAddr:
		f.Address = addr
	default:
		return nil, fmt.Errorf("a connection from a %T can't be forwarded", addr)
	}
	if state := c.TLS(); state != nil {
		f.TLS = true
		for _, cert := range state.PeerCertificates {
			f.Certificates = append(f.Certificates, cert.Raw)
		}
	}
	description, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fds[1])
	ours := os.NewFile(uintptr(fds[0]), "forwarded")
	defer ours.Close()
	if err := next.SetWriteDeadline(time.Now().Add(forwardTimeout)); err != nil {
		return nil, err
	}
	if _, _, err := next.WriteMsgUnix(description, unix.UnixRights(fds[1]), nil); err != nil {
		return nil, err
	}
	return net.FileConn(ours)
}

// Abandoned reports whether the earlier daemon forwarded the connection and has ended since, or has closed it. Its caller
// may still be there. A nil Conn is not.
func (c *Conn) Abandoned() bool { return c != nil && c.forwarded && c.closed.Load() }

// Forwarded returns a listener for [Listen], whose connections come from an earlier daemon. from is one end of a pair of
// sockets of the type SOCK_SEQPACKET; the earlier daemon has the other end. Accept returns io.EOF when the earlier
// daemon has ended.
func Forwarded(from *net.UnixConn) net.Listener { return &forwardedListener{from} }

type forwardedListener struct{ *net.UnixConn }

// Addr implements net.Listener.
func (l *forwardedListener) Addr() net.Addr { return l.LocalAddr() }

// Accept implements net.Listener. It skips a packet that is no connection: the earlier daemon then finds its end
// closed.
func (l *forwardedListener) Accept() (net.Conn, error) {
	buf, oob := make([]byte, maxForwarded), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, flags, _, err := l.ReadMsgUnix(buf, oob)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, io.EOF
		}
		conn, err := receive(oob[:oobn])
		if err != nil {
			continue
		}
		c := &forwardedConn{Conn: conn}
		if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || c.describe(buf[:n]) != nil {
			conn.Close()
			continue
		}
		return c, nil
	}
}

// receive returns the connection in a control message.
func receive(oob []byte) (net.Conn, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errors.New("not one control message"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, errors.Join(errors.New("not one descriptor"), err)
	}
	f := os.NewFile(uintptr(fds[0]), "forwarded")
	defer f.Close()
	return net.FileConn(f)
}

// A forwardedConn is a connection of a caller of the earlier daemon.
type forwardedConn struct {
	net.Conn
	addr net.Addr
	tls  *tls.ConnectionState // between the caller and the earlier daemon; nil: none
}

// RemoteAddr returns the address of the caller. The pair of sockets would say that the daemon itself calls.
func (c *forwardedConn) RemoteAddr() net.Addr { return c.addr }

// describe reads what Forward has written.
func (c *forwardedConn) describe(description []byte) error {
	var f forwarded
	if err := json.Unmarshal(description, &f); err != nil {
		return err
	}
	switch {
	case (f.User == nil) == (f.Address == nil):
		return errors.New("not one caller")
	case f.User != nil:
		c.addr = identity.User{Addr: c.Conn.RemoteAddr(), UID: f.User.UID, Groups: f.User.Groups}
	default:
		c.addr = f.Address
	}
	if !f.TLS {
		return nil
	}
	c.tls = &tls.ConnectionState{HandshakeComplete: true}
	for _, der := range f.Certificates {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		c.tls.PeerCertificates = append(c.tls.PeerCertificates, cert)
	}
	return nil
}
