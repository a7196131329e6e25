package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/test/bufconn"

	"github.com/skillrun/skillrun/internal/executor"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/permission"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// whoami returns the name under which a connection's calls run.
func whoami(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	runs := executionClient{pb.NewExecutionServiceClient(conn)}
	s, err := runs.Execute(t.Context(), script("scripts/hello.sh"))
	r := readAll(t, s, err)
	wantExit(t, r, 3)
	e, err := runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: r.id})
	if err != nil {
		t.Fatal(err)
	}
	return e.Principal
}

func TestPeerOverUnixSocket(t *testing.T) {
	d := startDaemon(t, nil)
	if got, want := whoami(t, d.conn), fmt.Sprintf("uid:%d", os.Getuid()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPeerOverTCP(t *testing.T) {
	d := startDaemon(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if got := whoami(t, d.serve(l, l.Addr().String())); got != "anonymous" {
		t.Errorf("got %q", got)
	}
}

// A connection that is neither is refused, and so is everything but its probes.
func TestPeerOfNoKnownKind(t *testing.T) {
	d := startIdle(t, nil)
	l := bufconn.Listen(64 << 10)
	conn := d.serve(l, "passthrough:///buf", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return l.DialContext(ctx)
	}))
	_, err := pb.NewSystemServiceClient(conn).GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
	wantRefusal(t, err, refusal{codes.Unauthenticated, "UNIDENTIFIED", ""})
	s, err := executionClient{pb.NewExecutionServiceClient(conn)}.Execute(t.Context(), script("scripts/hello.sh"))
	wantRefusal(t, readAll(t, s, err).err, refusal{codes.Unauthenticated, "UNIDENTIFIED", ""})
	_, err = reflected(t, conn)
	wantRefusal(t, err, refusal{codes.Unauthenticated, "UNIDENTIFIED", ""})
	if got := healthOf(t, conn, ""); got != notServing {
		t.Errorf("health: %s", got)
	}
}

func TestPeer(t *testing.T) {
	tcp := func(ip string) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}, AuthInfo: plainPeer{}})
	}
	unix := func(uid uint32) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{Addr: &net.UnixAddr{}, AuthInfo: unixPeer{user: ingress.User{UID: uid}}})
	}
	for _, c := range []struct {
		name string
		ctx  context.Context
		want string // "": refused
	}{
		{"no peer", t.Context(), ""},
		{"root", unix(0), "uid:0"},
		{"the largest user", unix(1<<32 - 1), "uid:4294967295"},
		{"a socket of unknown user", peer.NewContext(t.Context(), &peer.Peer{Addr: &net.UnixAddr{}, AuthInfo: plainPeer{}}), ""},
		{"loopback", tcp("127.0.0.1"), "anonymous"},
		{"loopback 6", tcp("::1"), "anonymous"},
		{"mapped loopback", tcp("::ffff:127.0.0.1"), "anonymous"},
		{"another machine", tcp("192.0.2.1"), ""},
		{"every address", tcp("0.0.0.0"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Peer(c.ctx)
			if (err != nil) != (c.want == "") || got.Name != c.want {
				t.Errorf("got %v, %v; want %q", got, err, c.want)
			}
			if err == nil && got.Tenant != ingress.DefaultTenant {
				t.Errorf("tenant %q", got.Tenant)
			}
		})
	}
}

func TestAnonymous(t *testing.T) {
	got, err := Anonymous(t.Context())
	if want := (permission.Principal{Tenant: ingress.DefaultTenant, Name: "anonymous"}); got != want || err != nil {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestIdentify(t *testing.T) {
	d := startIdle(t, func(_ *executor.Config, c *Config) {
		c.Identify = func(context.Context) (permission.Principal, error) {
			return permission.Principal{}, errors.New("the token has expired")
		}
	})
	_, err := d.runs.GetExecution(t.Context(), &pb.GetExecutionRequest{ExecutionId: "x"})
	st := wantRefusal(t, err, refusal{codes.Unauthenticated, "UNIDENTIFIED", ""})
	if got, want := st.Message(), "not identified: the token has expired"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A socket whose peer is not known is not served at all.
func TestHandshakeNeedsPeer(t *testing.T) {
	broken := errors.New("no credentials")
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	_, _, err := peerCredentials{}.ServerHandshake(addressed{a, ingress.User{Addr: a.RemoteAddr(), Err: broken}})
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	_, info, err := peerCredentials{}.ServerHandshake(addressed{a, ingress.User{Addr: a.RemoteAddr(), UID: 7}})
	if who, ok := info.(unixPeer); err != nil || !ok || who.user.UID != 7 {
		t.Errorf("got %v, %v", info, err)
	}
}

type addressed struct {
	net.Conn
	addr net.Addr
}

func (c addressed) RemoteAddr() net.Addr { return c.addr }
