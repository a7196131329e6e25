package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// A namespace is a network namespace with a thread in it. It ends with close and with the last process in
// it.
type namespace struct {
	file *os.File
	jobs chan func()
}

// newNamespace makes a namespace in which loopback is up.
func newNamespace() (*namespace, error) {
	n := &namespace{jobs: make(chan func())}
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
		for job := range n.jobs {
			job()
		}
	}()
	if err := <-made; err != nil {
		close(n.jobs)
		return nil, fault("make a network namespace", err)
	}
	if err := n.ip("link", "set", "lo", "up"); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// do calls f on a thread of the namespace. Sockets and processes that f makes are in the namespace.
func (n *namespace) do(f func() error) error {
	done := make(chan error)
	n.jobs <- func() { done <- f() }
	return <-done
}

// ip runs ip(8) in the namespace.
func (n *namespace) ip(args ...string) error { return n.run(exec.Command("ip", args...)) }

// run runs a program in the namespace. The error has its output.
func (n *namespace) run(cmd *exec.Cmd) error {
	return n.do(func() error {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w: %s", cmd.Args, err, bytes.TrimSpace(out))
		}
		return nil
	})
}

// close ends the thread. The kernel frees the namespace with the last process and descriptor in it
// (network_namespaces(7)).
func (n *namespace) close() {
	if n != nil {
		close(n.jobs)
		n.file.Close()
	}
}

// inside enters a namespace with the calling thread, which must be locked and end soon. Nil: the thread
// stays where it is.
func inside(n *namespace) error {
	if n == nil {
		return nil
	}
	return unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET)
}

// connect connects two namespaces by a pair of veth devices. a routes everything to b.
func connect(a *namespace, addressA string, b *namespace, addressB string) error {
	tid := 0
	if err := b.do(func() error { tid = unix.Gettid(); return nil }); err != nil {
		return err
	}
	return errors.Join(
		a.ip("link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", fmt.Sprint(tid)),
		a.ip("address", "add", addressA+"/24", "dev", "veth0"),
		b.ip("address", "add", addressB+"/24", "dev", "veth0"),
		a.ip("link", "set", "veth0", "up"),
		b.ip("link", "set", "veth0", "up"),
		a.ip("route", "add", "default", "via", addressB),
	)
}
