package ingress

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// connKey is the key of a request's connection in its context.
type connKey struct{}

// ConnContext is the ConnContext of an http.Server that serves a Listener: ConnOf finds the connections.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnOf returns the connection of a request to a server with ConnContext.
func ConnOf(r *http.Request) *Conn { return r.Context().Value(connKey{}).(*Conn) }

// RefuseHost returns the text of a refusal if the Host of a request is not a name of this machine, although the connection
// came to a loopback address. A page whose DNS name was changed to point to this machine sends such requests (DNS
// rebinding). The text is empty for connections that such a page can't have: to a Unix socket; with TLS, because the
// certificate does not have the page's name; and to another address.
func RefuseHost(r *http.Request) string {
	c := ConnOf(r)
	if c.TLS() != nil || c.LocalAddr().Network() == "unix" {
		return ""
	}
	if tcp, ok := c.LocalAddr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		return ""
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' { // IPv6 without a port
		host = host[1 : n-1]
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Sprintf("Host %.80q is not this machine; use localhost or 127.0.0.1", r.Host)
	}
	return ""
}
