package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/skillrun/skillrun/internal/network/policy"
)

const (
	handshakeRecord = 0x16   // the first byte of a TLS connection
	maxHello        = 16384  // bytes until the end of the client's first message
	encryptedHello  = 0xfe0d // the extension of RFC 9849: the server's name is encrypted
)

// sendChecked copies the client's data over a connection that is allowed for some names only. A TLS
// handshake must have one of them as its server name. Port 443 takes only TLS, and port 80 only
// HTTP. On other ports, a connection that does not begin with TLS passes without a check of its name:
// other protocols have no common place for a name.
func (c *connection) sendChecked() error {
	port := c.decision.to.Port()
	if port == 80 {
		return c.sendHTTP()
	}
	if port == 443 {
		_ = c.in.SetReadDeadline(time.Now().Add(c.gateway.entries.limits.Hello))
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(c.in, first); err != nil {
		return c.late(err, "TLS")
	}
	if first[0] != handshakeRecord {
		if port == 443 {
			return refusedError(c.decision.refuse(policy.Verdict{Reason: "it is not TLS, so no name can be checked"}))
		}
		return c.sendRest(first)
	}
	_ = c.in.SetReadDeadline(time.Now().Add(c.gateway.entries.limits.Hello))
	hello, read, err := readHello(io.MultiReader(bytes.NewReader(first), c.in))
	if err != nil {
		return c.late(err, "TLS")
	}
	if slices.Contains(hello.Extensions, encryptedHello) {
		return refusedError(c.decision.refuse(policy.Verdict{Reason: "the TLS server name is encrypted (ECH)"}))
	}
	d, ok := c.gateway.spoken(c.decision, hello.ServerName, "TLS server name")
	if !ok {
		return refusedError(d)
	}
	return c.sendRest(read)
}

// sendRest sends the bytes that the check has read, then copies.
func (c *connection) sendRest(read []byte) error {
	_ = c.in.SetReadDeadline(time.Time{})
	if err := c.pass(c.out, read, &c.sent); err != nil {
		return err
	}
	return c.copy(c.out, c.in, &c.sent)
}

// late turns a read error into a refusal, if the client sent no valid start in time. A client that
// ends the connection before it sends anything is not refused.
func (c *connection) late(err error, protocol string) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return refusedError(c.decision.refuse(policy.Verdict{Reason: "the client sent no name in time"}))
	}
	if errors.Is(err, errNotHello) {
		return refusedError(c.decision.refuse(policy.Verdict{Reason: "the start is not valid " + protocol}))
	}
	return err
}

var errNotHello = errors.New("not a valid start")

// readHello parses the client's first message with a server of crypto/tls that never answers. read has
// all bytes that were read from r.
func readHello(r io.Reader) (hello *tls.ClientHelloInfo, read []byte, err error) {
	conn := &helloConn{from: io.LimitedReader{R: r, N: maxHello}}
	stop := errors.New("the message is read")
	err = tls.Server(conn, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = info
		return nil, stop
	}}).HandshakeContext(context.Background())
	if conn.failed != nil {
		return nil, nil, conn.failed
	}
	if hello == nil {
		return nil, nil, errors.Join(errNotHello, err)
	}
	return hello, conn.read, nil
}

// A helloConn records the bytes that it reads, and discards writes.
type helloConn struct {
	net.Conn
	from   io.LimitedReader
	read   []byte
	failed error // of the client's connection
}

func (c *helloConn) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.read = append(c.read, b[:n]...)
	if err != nil && !errors.Is(err, io.EOF) {
		c.failed = err
	}
	return n, err
}

func (c *helloConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c *helloConn) Close() error                     { return nil }
func (c *helloConn) SetDeadline(time.Time) error      { return nil }
func (c *helloConn) SetReadDeadline(time.Time) error  { return nil }
func (c *helloConn) SetWriteDeadline(time.Time) error { return nil }
