package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/skillrun/skillrun/internal/network/policy"
)

const (
	handshakeRecord = 0x16 // the first byte of a TLS connection
	// Other records begin with firstRecord to lastRecord (RFC 8446, 5.1; RFC 6520), and then have a version. In the first
	// record crypto/tls accepts versions whose first byte is below laterVersion.
	firstRecord    = 0x14
	lastRecord     = 0x18
	laterVersion   = 0x10
	maxHello       = 16384  // bytes until the end of a message with the server's name
	encryptedHello = 0xfe0d // the extension of RFC 9849: the server's name is encrypted

	recordHeader  = 5   // bytes: type, version, length
	messageHeader = 4   // bytes: type, length
	peekSize      = 512 // bytes of the buffer for the first records of a connection
)

// recordSize is the size of a record that begins with b.
func recordSize(b []byte) int { return recordHeader + int(binary.BigEndian.Uint16(b[3:])) }

// sendChecked copies the client's data over a connection that is allowed for some names only, or for all names except
// denied ones. A TLS handshake must have an allowed server name. Port 80 accepts only HTTP. Port 443 accepts only TLS if
// the rules allow some names only. Any other connection that does not begin with TLS passes without a check, because
// other protocols have no common place for a name.
func (c *connection) sendChecked() error {
	port := c.decision.to.Port()
	if port == 80 {
		return c.sendHTTP()
	}
	onlyTLS := port == 443 && c.decision.names != nil
	if onlyTLS {
		_ = c.in.SetReadDeadline(time.Now().Add(c.gateway.entries.limits.Hello))
	}
	in := bufio.NewReaderSize(c.in, peekSize)
	_, err := in.Peek(1)
	if errors.Is(err, io.EOF) { // a client that sends nothing may read
		return c.cut()
	}
	if err != nil {
		return c.late(err, "TLS")
	}
	if beginsTLS(in) {
		return c.sendTLS(in)
	}
	if onlyTLS {
		return refusedError(c.decision.refuse(policy.Verdict{Reason: "it is not TLS, so no name can be checked"}))
	}
	_ = c.in.SetReadDeadline(time.Time{})
	return c.outward(rest(in))
}

// beginsTLS reports whether the client's data begins with a record of TLS. Some servers skip a record of another type
// before the handshake: crypto/tls an alert, OpenSSL an empty change_cipher_spec. readHello refuses such a start.
func beginsTLS(in *bufio.Reader) bool {
	start, err := in.Peek(1)
	if err != nil || start[0] < firstRecord || start[0] > lastRecord {
		return false
	}
	if start[0] == handshakeRecord {
		return true
	}
	start, err = in.Peek(2)
	return err == nil && start[1] < laterVersion
}

// sendTLS checks the client's first message, and the second one that a server may ask for. After
// that, the client's names are encrypted.
func (c *connection) sendTLS(in *bufio.Reader) error {
	if err := c.sendHello(in); err != nil {
		return err
	}
	again, err := c.sendToHello(in)
	if err == nil && again {
		err = c.sendHello(in)
	}
	if err != nil {
		return err
	}
	return c.outward(rest(in))
}

// rest returns the bytes that a reader has buffered.
func rest(r *bufio.Reader) []byte {
	b, _ := r.Peek(r.Buffered())
	return b
}

// sendHello checks one message with the server's name, and sends it.
func (c *connection) sendHello(in *bufio.Reader) error {
	_ = c.in.SetReadDeadline(time.Now().Add(c.gateway.entries.limits.Hello))
	hello, read, err := readHello(in)
	if err != nil {
		return c.late(err, "TLS")
	}
	// A deny rule does not refuse ECH, or browsers would reach nothing: they send something like it to every server.
	if c.decision.names != nil && slices.Contains(hello.Extensions, encryptedHello) {
		return refusedError(c.decision.refuse(policy.Verdict{Reason: "the TLS server name is encrypted (ECH)"}))
	}
	if err := c.names(hello.ServerName, "TLS server name"); err != nil {
		return err
	}
	_ = c.in.SetReadDeadline(time.Time{})
	return c.pass(c.out, read, &c.sent)
}

// late turns a read error into a refusal, if the client sent no valid start in time. A client that
// ends the connection before that is not refused.
func (c *connection) late(err error, protocol string) error {
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

// readHello parses a message of the client with the server's name, with a server of crypto/tls that
// never answers. read has all bytes that were read from r, which are whole records.
func readHello(r io.Reader) (hello *tls.ClientHelloInfo, read []byte, err error) {
	conn := &helloConn{from: io.LimitedReader{R: r, N: maxHello}}
	stop := errors.New("the message is read")
	// crypto/tls parses the message, so that no parser of TLS has to be written here. It calls GetConfigForClient when
	// the message is whole, and the error from there ends the handshake.
	err = tls.Server(conn, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = info
		return nil, stop
	}}).HandshakeContext(context.Background())
	if conn.failed != nil {
		return nil, nil, conn.failed
	}
	if hello == nil || !conn.isOneMessage() {
		return nil, nil, errors.Join(errNotHello, err)
	}
	return hello, conn.read, nil
}

// A helloConn records the bytes that it reads, and discards writes. A Read ends where a record ends,
// so that nothing is taken that follows the message.
type helloConn struct {
	net.Conn
	from   io.LimitedReader
	read   []byte
	record int   // in read: the start of the last record
	failed error // of the client's connection
}

func (c *helloConn) Read(b []byte) (int, error) {
	n, err := c.from.Read(b[:min(len(b), c.rest())])
	c.read = append(c.read, b[:n]...)
	switch {
	case errors.Is(err, io.EOF) && c.from.N > 0:
		c.failed = io.ErrUnexpectedEOF
	case err != nil && !errors.Is(err, io.EOF): // io.EOF: more than maxHello
		c.failed = err
	}
	return n, err
}

// rest is how many bytes are missing of a record, or of its header.
func (c *helloConn) rest() int {
	for {
		part := c.read[c.record:]
		if len(part) < recordHeader {
			return recordHeader - len(part)
		}
		if size := recordSize(part); len(part) < size {
			return size - len(part)
		}
		c.record += recordSize(part)
	}
}

// isOneMessage reports whether the records have exactly one message of the handshake. A server could read more bytes as
// the message that it asks for next, and skip a record of another type, as crypto/tls does.
func (c *helloConn) isOneMessage() bool {
	var message []byte
	for rest := c.read; len(rest) >= recordHeader && len(rest) >= recordSize(rest); rest = rest[recordSize(rest):] {
		if rest[0] != handshakeRecord {
			return false
		}
		message = append(message, rest[recordHeader:recordSize(rest)]...)
	}
	// A message has its type in one byte and its length in three (RFC 8446, 4), so the mask removes the type.
	return len(message) >= messageHeader && len(message) == messageHeader+int(binary.BigEndian.Uint32(message)&0xffffff)
}

func (c *helloConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c *helloConn) Close() error                     { return nil }
func (c *helloConn) SetDeadline(time.Time) error      { return nil }
func (c *helloConn) SetReadDeadline(time.Time) error  { return nil }
func (c *helloConn) SetWriteDeadline(time.Time) error { return nil }
