package gateway

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A changedConn changes the messages with a server name that a client writes.
type changedConn struct {
	net.Conn
	hellos int
	change func(hello []byte, number int) []byte
}

func (c *changedConn) Write(b []byte) (int, error) {
	changed := b
	if b[0] == handshakeRecord && b[recordHeader] == 1 {
		c.hellos++
		changed = c.change(bytes.Clone(b), c.hellos)
	}
	if _, err := c.Conn.Write(changed); err != nil {
		return 0, err
	}
	return len(b), nil
}

// other has the second message name another server.
func other(hello []byte, number int) []byte {
	if number == 2 {
		return bytes.Replace(hello, []byte("www.test"), []byte("bad.test"), 1)
	}
	return hello
}

// after returns a change that sends a record after the first message.
func after(record string) func([]byte, int) []byte {
	return func(hello []byte, number int) []byte {
		if number == 1 {
			return append(hello, record...)
		}
		return other(hello, number)
	}
}

// longer has the first message's record go on with the start of another message.
func longer(hello []byte, _ int) []byte {
	hello = append(hello, 1, 0, 0, 0)
	binary.BigEndian.PutUint16(hello[3:], uint16(len(hello)-recordHeader))
	return hello
}

// A skippingConn is a server's connection without the records that a client sends between its two messages. The
// TLS server of Go refuses such records, perhaps before the second message has come.
type skippingConn struct {
	net.Conn
	in       *bufio.Reader
	messages int
	rest     []byte // of the present record
}

func (c *skippingConn) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.messages == 2 {
			return c.in.Read(b)
		}
		start, err := c.in.Peek(recordHeader)
		if err != nil {
			return 0, err
		}
		message := start[0] == handshakeRecord && recordSize(start) > recordHeader
		record := make([]byte, recordSize(start))
		if _, err := io.ReadFull(c.in, record); err != nil {
			return 0, err
		}
		if message {
			c.rest = record
			c.messages++
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

type skippingListener struct{ net.Listener }

func (l skippingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &skippingConn{Conn: c, in: bufio.NewReader(c)}, nil
}

// A server may have the client say its name again.
func TestServerNameOfRetry(t *testing.T) {
	newZone(t)
	l, err := net.Listen("tcp", networktest.Public+":443")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: skippingListener{l}, TLS: &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}}, Config: &http.Server{ErrorLog: stdlog.New(io.Discard, "", 0)}}
	s.StartTLS()
	t.Cleanup(s.Close)
	for name, c := range map[string]struct {
		change func([]byte, int) []byte
		want   string
	}{
		"the same":              {func(hello []byte, _ int) []byte { return hello }, ""},
		"another":               {other, "bad.test"},
		"after early data":      {after("\x17\x03\x03\x00\x03abc"), "bad.test"},
		"after a change":        {after("\x14\x03\x03\x00\x01\x01"), "bad.test"},
		"after an empty record": {after("\x16\x03\x03\x00\x00"), "bad.test"},
		"in the first record":   {longer, "not valid TLS"},
	} {
		for _, rules := range [][2][]string{{{"www.test"}}, {{"public"}, {"bad.test"}}} {
			b := newBox(t, rules[0], rules[1])
			changed := &changedConn{Conn: b.dialNamed(t, "443", "www.test"), change: c.change}
			config := &tls.Config{ServerName: "www.test", InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP384}}
			err := tls.Client(changed, config).Handshake()
			if c.want == "" {
				if err != nil || changed.hellos != 2 {
					t.Errorf("%s, %s: %v after %d messages", name, rules, err, changed.hellos)
				}
				continue
			}
			if err == nil {
				t.Errorf("%s, %s: it is connected", name, rules)
			}
			b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == c.want || strings.Contains(d.Reason, c.want) })
		}
	}
}

// A client can send anything as a name. The event has no byte of it that a terminal obeys, and has an end.
func TestNamesAreShown(t *testing.T) {
	newZone(t)
	serveHTTP(t, networktest.Public+":443", true)
	serveHTTP(t, networktest.Public+":80", false)
	b := newBox(t, []string{"www.test"}, nil)
	config := &tls.Config{ServerName: "\x1b[2J\u202e", InsecureSkipVerify: true}
	if err := tls.Client(b.dialNamed(t, "443", "www.test"), config).Handshake(); err == nil {
		t.Error("it is connected")
	}
	b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == `"\x1b[2j\u202e"` })
	_, _ = io.WriteString(b.dialNamed(t, "80", "www.test"), "GET / HTTP/1.1\r\nHost: "+strings.Repeat("<", 60000)+"\r\n\r\n")
	b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == strings.Repeat("<", maxShown) })
	b.ask(t, "udp", `\027[2J.bad`, dns.TypeA)
	b.awaitDenial(t, func(d policy.Denial) bool { return d.Name == `\027[2j.bad` })
}
