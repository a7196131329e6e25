package main

import (
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// The configuration's name servers are asked in place of the machine's, and its bounds hold. A refusal
// names the key.
func TestNetworkLimits(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "online", "network_access: true", map[string]string{"scripts/ask.py": ask, "scripts/hold.py": `import socket
first = socket.create_connection(("` + webAddress + `", 80))
try:
    socket.create_connection(("` + webAddress + `", 80))
except OSError as e:
    print(e.strerror)
`})
	// Nothing listens on port 5300, so the first name server fails at once.
	d := startOnInternet(t, dir, `
network: {}
network_resolvers: ["`+webAddress+`:5300", "`+webAddress+`"]
network_limits: {connections: 1, names: 1}
`)
	r := d.run(script("online", "scripts/ask.py", "http://web.example/", "http://other.example/"))
	if out := r.stdout.String(); !strings.HasPrefix(out, "hello, web.example\nhttp://other.example/ ") {
		t.Errorf("got %q", out)
	}
	wantDenied(t, r.events, "more than 1 different names (network_limits.names)")
	r = d.run(script("online", "scripts/hold.py"))
	r.wantStdout(t, "Connection refused\n")
	wantDenied(t, r.events, "more than 1 connections (network_limits.connections)")
}

// The machine's name servers are not asked if the configuration has others.
func TestNetworkResolvers(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "online", "network_access: true", map[string]string{"scripts/ask.py": ask})
	d := startOnInternet(t, dir, `
network: {}
network_resolvers: ["`+webAddress+`:5300"]
`)
	r := d.run(script("online", "scripts/ask.py", "http://web.example/", "http://"+webAddress+"/"))
	if out := r.stdout.String(); !strings.HasPrefix(out, "http://web.example/ ") || !strings.HasSuffix(out, "\nhello, "+webAddress+"\n") {
		t.Errorf("got %q", out)
	}
}

func wantDenied(t *testing.T, events []*pb.ExecutionEvent, reason string) {
	t.Helper()
	var denied []*pb.NetworkDenial
	for _, e := range events {
		if d := e.GetDenied(); d != nil {
			if d.Reason == reason {
				return
			}
			denied = append(denied, d)
		}
	}
	t.Errorf("no refusal %q; refusals: %v", reason, denied)
}
