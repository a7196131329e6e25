package gateway

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/skillrun/skillrun/internal/network/networktest"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// echo sends back the bytes that it receives, then ends its direction.
func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// Data arrives whole in both directions, and an end of one direction leaves the other one open.
func TestTCP(t *testing.T) {
	for _, host := range []string{networktest.Public, networktest.Public6} {
		t.Run(host, func(t *testing.T) {
			address := net.JoinHostPort(host, "80")
			networktest.Serve(t, address, echo)
			b := newBox(t, nil, nil)
			c, err := b.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			data := make([]byte, 5<<20)
			_, _ = rand.Read(data)
			go func() {
				_, _ = c.Write(data)
				_ = c.(*net.TCPConn).CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("got %d bytes of %d, %v", len(got), len(data), err)
			}
			c.Close()
			if e := b.awaitClosed(t); e.Sent != int64(len(data)) || e.Received != e.Sent || e.To.String() != address || e.Protocol != "tcp" {
				t.Errorf("event: %+v", e)
			}
		})
	}
}

// What no rule allows is refused at once, and the event names the rule that would allow it.
func TestTCPRefused(t *testing.T) {
	b := newBox(t, []string{"public", "20.1.0.2:7000"}, []string{"20.1.0.2:443"})
	for _, c := range []struct{ to, rule, missing string }{
		{networktest.Private + ":80", "private", "10.5.0.1:80"},
		{networktest.Metadata + ":80", "link-local", "169.254.169.254:80"},
		{"127.0.0.2:80", "", ""}, // the sandbox's own loopback: no packet leaves it
		{networktest.Public + ":22", "", "20.1.0.1:22"},
		{networktest.Public2 + ":443", "20.1.0.2:443", ""},
		{networktest.Public + ":53", "resolver", "20.1.0.1:53"},
		{"[64:ff9b::a9fe:a9fe]:80", "link-local", "[64:ff9b::a9fe:a9fe]:80"},
		{"[fe80::1%eth0]:80", "", ""},
		{"192.0.0.1:80", "", ""},
	} {
		t.Run(c.to, func(t *testing.T) {
			conn, err := b.Dial("tcp", c.to)
			if err == nil {
				conn.Close()
				t.Fatal("it is connected")
			}
			if !errors.Is(err, syscall.ECONNREFUSED) && !strings.HasPrefix(c.to, "[fe80") {
				t.Errorf("not refused: %v", err)
			}
			if c.missing == "" {
				return
			}
			d := b.awaitDenial(t, func(d policy.Denial) bool { return d.To.String() == c.to })
			if d.Rule != c.rule || d.Missing != c.missing || d.Protocol != "tcp" || d.Reason == "" {
				t.Errorf("event: %+v", d)
			}
		})
	}
}

// An allowed destination that refuses is refused inside. It is no refusal of the rules, but a connection with an
// error.
func TestTCPNobodyListens(t *testing.T) {
	b := newBox(t, nil, nil)
	if _, err := b.Dial("tcp", networktest.Public+":80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	b.gateway.Close()
	if len(b.denials) != 0 || len(b.closed) != 1 || b.closed[0].Error != "connection refused" || b.closed[0].To.String() != networktest.Public+":80" {
		t.Errorf("events: %v %v", b.denials, b.closed)
	}
}
