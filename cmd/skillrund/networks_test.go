package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Networks are two network namespaces with a cable: one is the daemon's machine, the other its clients'.
type networks struct {
	t               *testing.T
	daemon, clients string // paths of the namespaces
	hosts           string // the clients' /etc/hosts
}

// serverName is the daemon's name in the documentation, and serverIP its address (RFC 5737).
const serverName, serverIP, clientIP = "skillrun.example.org", "192.0.2.1", "192.0.2.2"

func newNetworks(t *testing.T) *networks {
	t.Helper()
	needsDaemon(t)
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("makes network namespaces, which needs iproute2: ", err)
	}
	name := filepath.Base(t.TempDir())
	a, b := fmt.Sprintf("skillrun-%d-%s-d", os.Getpid(), name), fmt.Sprintf("skillrun-%d-%s-c", os.Getpid(), name)
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	for _, ns := range []string{a, b} {
		ip("netns", "add", ns)
		t.Cleanup(func() { ip("netns", "delete", ns) }) // the cable goes with it
		ip("-netns", ns, "link", "set", "lo", "up")
	}
	ip("-netns", a, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b)
	for ns, address := range map[string]string{a: serverIP, b: clientIP} {
		ip("-netns", ns, "address", "add", address+"/24", "dev", "eth0")
		ip("-netns", ns, "link", "set", "eth0", "up")
	}
	n := &networks{t: t, daemon: "/run/netns/" + a, clients: "/run/netns/" + b, hosts: filepath.Join(t.TempDir(), "hosts")}
	if err := os.WriteFile(n.hosts, []byte("127.0.0.1 localhost\n"+serverIP+" "+serverName+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return n
}

// client returns a command on the clients' machine, which knows the daemon's name.
func (n *networks) client(env []string, name string, args ...string) *exec.Cmd {
	const enter = `mount --bind "$1" /etc/hosts && ns=$2 && shift 2 && exec nsenter --net="$ns" -- "$@"`
	cmd := exec.Command("unshare", append([]string{"--mount", "--", "/bin/sh", "-c", enter, "sh", n.hosts, n.clients, name}, args...)...)
	cmd.Env = append(os.Environ(), "no_proxy=*", "NO_PROXY=*", "no_grpc_proxy=*", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// dial connects from the clients' machine.
func (n *networks) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Only this thread enters the namespace. Go ends the locked thread with the goroutine.
		runtime.LockOSThread()
		var ns *os.File
		if ns, err = os.Open(n.clients); err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			conn, err = new(net.Dialer).DialContext(ctx, "tcp", serverIP+":"+port)
		}
	}()
	<-done
	return conn, err
}
