package ingress

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/skillrun/skillrun/internal/ingress/identity"
)

// The kernel identifies the caller of a real socket.
func TestAddressOfASocket(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := Listen(inner, Limits{}, slog.New(slog.DiscardHandler))
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
	who, ok := conn.RemoteAddr().(identity.User)
	if !ok || who.Err != nil || who.UID != uint32(os.Getuid()) || !slices.Contains(who.Groups, uint32(os.Getgid())) {
		t.Errorf("got %+v, want uid %d and group %d", who, os.Getuid(), os.Getgid())
	}
	if c := conn.(*Conn).Credentials([]string{"x"}); c.Addr.(identity.User).UID != who.UID || c.TLS != nil || c.Session == nil || len(c.Authorization) != 1 {
		t.Errorf("got %+v", c)
	}
}

// More supplementary groups than the first buffer has room for.
func TestGroupsOfAPeer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can choose its groups")
	}
	path := filepath.Join(t.TempDir(), "s.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var groups []uint32
	for gid := range uint32(100) {
		groups = append(groups, 70000+gid)
	}
	// It connects and then waits for the end of its standard input.
	client := exec.Command("/usr/bin/python3", "-c", "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nsys.stdin.read()", path)
	client.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Gid: 80000, Groups: groups}}
	var stderr bytes.Buffer
	client.Stderr = &stderr
	input, err := client.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	who := addressOf(conn).(identity.User)
	if want := append(groups, 80000); who.Err != nil || !slices.Equal(who.Groups, want) {
		t.Errorf("got %+v, want groups %v", who, want)
	}
	input.Close()
	if err := client.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
}
