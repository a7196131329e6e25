package server

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/permission"
)

func TestExplain(t *testing.T) {
	d := startDaemon(t, nil)
	full := &executor.SaturatedError{Running: 1, Queued: 2}
	if got := d.Explain(full); got != full.Error() {
		t.Errorf("got %q, want %q", got, full)
	}
	got := d.Explain(errors.New("open /var/lib/secret: no such file"))
	reference, ok := strings.CutPrefix(got, "internal error (reference ")
	if !ok || strings.Contains(got, "secret") {
		t.Errorf("got %q", got)
	}
	if len(d.logs.with(strings.TrimSuffix(reference, ")"), "/var/lib/secret")) != 1 {
		t.Error("an error of ours is not in the log")
	}
}

func TestPeerOf(t *testing.T) {
	for _, tt := range []struct {
		addr net.Addr
		want string // empty: an error
	}{
		{peerAddr{uid: 1234}, "uid:1234"},
		{peerAddr{err: errors.New("no credentials")}, ""},
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, "anonymous"},
		{&net.TCPAddr{IP: net.IPv6loopback}, "anonymous"},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, ""},
		{&net.UnixAddr{}, ""},
		{nil, ""},
	} {
		who, err := PeerOf(tt.addr)
		if tt.want == "" {
			if err == nil || who != (permission.Principal{}) {
				t.Errorf("%v: got %v, %v; want an error", tt.addr, who, err)
			}
			continue
		}
		if err != nil || who != (permission.Principal{Tenant: defaultTenant, Name: tt.want}) {
			t.Errorf("%v: got %v, %v; want %s", tt.addr, who, err, tt.want)
		}
	}
	if who, err := Anonymous(context.Background()); err != nil || who.Name != "anonymous" {
		t.Errorf("got %v, %v", who, err)
	}
}
