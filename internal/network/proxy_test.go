package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/certtest"
	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/networktest"
)

// A confined helper opens connections through a proxy with TLS and a password. The Manager reads files and the
// name for each attachment.
func TestProxy(t *testing.T) {
	dir := t.TempDir()
	authority := certtest.NewAuthority(t, "authority of the proxy")
	pair := authority.Server("proxy").TLS()
	asked := make(chan string, 10)
	networktest.Serve(t, "127.0.0.1:3128", func(raw net.Conn) {
		c := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{pair}})
		from := bufio.NewReader(c)
		r, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		user, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
		asked <- fmt.Sprintf("%s %s %s %s", r.Method, r.RequestURI, user, password)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		_, _ = io.Copy(c, from)
	})
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Host: "127.0.0.1", Port: 3128, Secure: true, Username: "skillrun",
		Password: credential.Source{File: secret}, CA: credential.Source{File: authority.WriteRoots(dir + "/ca.pem")}}
	m := newManager(t, func(c *Config) { c.Proxy = p })
	newBox(t, m, "a").echo(t) // without an echo server: the proxy is one
	if got := <-asked; got != "CONNECT "+echoAddress+" skillrun s3cr3t" {
		t.Errorf("the proxy was asked: %s", got)
	}
	// The machine's authorities go to the helper if the configuration has no others.
	t.Setenv("SSL_CERT_FILE", dir+"/ca.pem")
	p.CA = credential.Source{}
	newBox(t, m, "b").echo(t)

	attach := func(tenant string) error {
		b, l := link(t, m, tenant, "20.1.0.1:*")
		err := b.network.Attach(context.Background(), l)
		if err == nil {
			b.network.Detach()
		}
		return err
	}
	if err := attach("a"); err != nil {
		t.Error(err)
	}
	p.Host = "no.such.name.invalid"
	if err := attach("a"); err == nil || !strings.Contains(err.Error(), "network_proxy.url: lookup no.such.name.invalid") {
		t.Errorf("without an address: %v", err)
	}
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	if err := attach("a"); err == nil || !strings.Contains(err.Error(), "network_proxy: open "+secret) {
		t.Errorf("without the password: %v", err)
	}
	if err := p.Check(); err == nil {
		t.Error("Check finds no mistake")
	}
	if g, err := (*Proxy)(nil).open(t.Context()); g != nil || err != nil {
		t.Errorf("without a proxy: %v, %v", g, err)
	}
}
