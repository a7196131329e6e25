package ingress

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/skillrun/skillrun/internal/permission"
)

func TestIdentify(t *testing.T) {
	for _, tt := range []struct {
		addr net.Addr
		want string // empty: an error
	}{
		{User{UID: 1234}, "uid:1234"},
		{User{Err: errors.New("no credentials")}, ""},
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, "anonymous"},
		{&net.TCPAddr{IP: net.IPv6loopback}, "anonymous"},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, ""},
		{&net.UnixAddr{}, ""},
		{nil, ""},
	} {
		who, err := Identify(tt.addr)
		if tt.want == "" {
			if err == nil || who != (permission.Principal{}) {
				t.Errorf("%v: got %v, %v; want an error", tt.addr, who, err)
			}
			continue
		}
		if err != nil || who != (permission.Principal{Tenant: DefaultTenant, Name: tt.want}) {
			t.Errorf("%v: got %v, %v; want %s", tt.addr, who, err, tt.want)
		}
	}
	if who := Anonymous(); who.Name != "anonymous" || who.Tenant != DefaultTenant {
		t.Errorf("got %v", who)
	}
}

// The kernel identifies the caller of a real socket.
func TestAddressOfASocket(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := Listen(inner, slog.New(slog.DiscardHandler))
	client, err := net.Dial("unix", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	who, err := Identify(conn.RemoteAddr())
	if want := fmt.Sprint("uid:", os.Getuid()); err != nil || who.Name != want {
		t.Errorf("got %v, %v; want %s", who, err, want)
	}
}
