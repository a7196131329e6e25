package ingress

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skillrun/skillrun/internal/certtest"
)

// secured listens with a certificate of an authority and answers each connection with its first
// byte.
func secured(t *testing.T, a *certtest.Authority, dir string, log *slog.Logger) *Listener {
	t.Helper()
	c, err := LoadCertificate(dir+"/daemon.crt", dir+"/daemon.key", log)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(Secure(inner, c, HTTP2), Limits{}, log)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				io.CopyN(conn, conn, 1)
			})
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return l
}

// echo sends a byte and waits for it.
func echo(t *testing.T, l net.Listener, config *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", l.Addr().String(), config)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{'x'}); err != nil {
		return tls.ConnectionState{}, err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return conn.ConnectionState(), err
}

func TestSecure(t *testing.T) {
	a, dir := certtest.NewAuthority(t, "authority"), t.TempDir()
	a.Server("one").Write(dir, "daemon")
	l := secured(t, a, dir, slog.New(slog.DiscardHandler))
	trust := func() *tls.Config { return &tls.Config{RootCAs: a.Roots(), NextProtos: []string{"h2"}} }
	state, err := echo(t, l, trust())
	if err != nil || state.Version != tls.VersionTLS13 || state.NegotiatedProtocol != HTTP2 || state.PeerCertificates[0].Subject.CommonName != "one" {
		t.Fatalf("got %+v, %v", state, err)
	}
	old := trust()
	old.MaxVersion = tls.VersionTLS12
	if _, err := echo(t, l, old); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2: got %v", err)
	}
	other := trust()
	other.NextProtos = []string{"imap"}
	if _, err := echo(t, l, other); err == nil || !strings.Contains(err.Error(), "no application protocol") {
		t.Errorf("another protocol: got %v", err)
	}
	stranger := trust()
	stranger.RootCAs = certtest.NewAuthority(t, "another").Roots()
	var unknown x509.UnknownAuthorityError
	if _, err := echo(t, l, stranger); !errors.As(err, &unknown) {
		t.Errorf("another authority: got %v", err)
	}

	// The next connection has the new certificate.
	a.Server("two").Write(dir, "daemon")
	if state, err := echo(t, l, trust()); err != nil || state.PeerCertificates[0].Subject.CommonName != "two" {
		t.Errorf("after a change: got %v", err)
	}
	// A key that does not fit keeps the certificate.
	if err := os.WriteFile(dir+"/daemon.key", a.Server("three").Key, 0o600); err != nil {
		t.Fatal(err)
	}
	if state, err := echo(t, l, trust()); err != nil || state.PeerCertificates[0].Subject.CommonName != "two" {
		t.Errorf("after a wrong key: got %v", err)
	}
}

func TestLoadCertificate(t *testing.T) {
	a, dir := certtest.NewAuthority(t, "authority"), t.TempDir()
	a.Server("one").Write(dir, "one")
	a.Server("two").Write(dir, "two")
	a.Client("old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }).Write(dir, "old")
	for _, c := range []struct{ certificate, key, want string }{
		{"one.crt", "two.key", "private key does not match public key"},
		{"one.key", "one.key", "failed to find"},
		{"none.crt", "one.key", "no such file"},
	} {
		if _, err := LoadCertificate(dir+"/"+c.certificate, dir+"/"+c.key, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: got %v, want %q", c.certificate, c.key, err, c.want)
		}
	}
	var logs bytes.Buffer
	if _, err := LoadCertificate(dir+"/old.crt", dir+"/old.key", slog.New(slog.NewTextHandler(&logs, nil))); err != nil || !strings.Contains(logs.String(), "has expired") {
		t.Errorf("an expired one: got %v and the log %q, want a warning", err, logs.String())
	}
}

// A connection without a complete handshake counts as idle, so a new connection can replace it.
func TestSlowHandshakesMakeRoom(t *testing.T) {
	a, dir := certtest.NewAuthority(t, "authority"), t.TempDir()
	a.Server("one").Write(dir, "daemon")
	l := secured(t, a, dir, slog.New(slog.DiscardHandler))
	var slow []net.Conn
	for range MaxPeerUnidentified + 5 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// The header of a TLS record, and then nothing.
		if _, err := conn.Write([]byte{22, 3, 1, 1, 0}); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	if _, err := echo(t, l, &tls.Config{RootCAs: a.Roots(), NextProtos: []string{"h2"}}); err != nil {
		t.Errorf("beside slow ones: %v", err)
	}
	if _, err := slow[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest one is still open")
	}
}

// Handshakes that fail have at most one line of the log each second.
func TestFailedHandshakesAreLogged(t *testing.T) {
	a, dir := certtest.NewAuthority(t, "authority"), t.TempDir()
	a.Server("one").Write(dir, "daemon")
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		log := slog.New(slog.NewTextHandler(&logs, nil))
		c, err := LoadCertificate(dir+"/daemon.crt", dir+"/daemon.key", log)
		if err != nil {
			t.Fatal(err)
		}
		l := Listen(Secure(callersListener(nil), c, HTTP2), Limits{}, log)
		try := func(text string) {
			t.Helper()
			ours, theirs := net.Pipe()
			conn := &Conn{Conn: ours, raw: ours, secure: tls.Server(ours, l.config), listener: l, peer: "192.0.2.1"}
			go io.Copy(io.Discard, theirs)
			go func() {
				io.WriteString(theirs, text)
				theirs.Close()
			}()
			for range 2 { // it is counted once
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					t.Error("no error")
				}
			}
		}
		try("GET / HTTP/1.1\r\n\r\n")
		if got := logs.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "count=1 last_peer=192.0.2.1") || !strings.Contains(got, "does not look like a TLS handshake") {
			t.Errorf("got %q", got)
		}
		logs.Reset()
		try("GET / HTTP/1.1\r\n\r\n")
		try("") // a probe of a load balancer
		if logs.Len() > 0 {
			t.Errorf("too soon: %s", logs.String())
		}
		time.Sleep(logInterval)
		try("PUT / HTTP/1.1\r\n\r\n")
		if got := logs.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "count=2") {
			t.Errorf("got %q, want one line of two", got)
		}
	})
}
