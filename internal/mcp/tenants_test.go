package mcp

import (
	"net/http"
	"testing"

	"github.com/skillrun/skillrun/internal/ingress"
)

// A request beyond the connections of identified callers gets 503 with Retry-After.
func TestConnectionsAreBounded(t *testing.T) {
	d := startIdle(t, func(c *Config) { c.Connections = ingress.Limits{Connections: 1, PeerConnections: 1} })
	r := d.open(t, d.mine)
	stream := r.request("GET", "")
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK {
		t.Fatal(stream.Status)
	}
	other := &raw{t: t, http: httpClient(t, d.mine)}
	resp := other.request("POST", initialize)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%s, Retry-After %q; want 503 and some time", resp.Status, resp.Header.Get("Retry-After"))
	}
}
