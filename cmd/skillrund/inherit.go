package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

// inherited are the sockets that the starter of the daemon has opened, as systemd does for a unit with a
// socket unit (sd_listen_fds(3)). The starter keeps them when the daemon ends, so connections wait for the
// next daemon.
type inherited []listener

// inherit takes the sockets from the environment. Processes that the daemon starts get neither them nor the
// variables.
func inherit() (open inherited, err error) {
	defer func() {
		if err != nil {
			open.close()
		}
	}()
	for _, f := range activation.Files(true) {
		l, err := inheritOne(f)
		if err != nil {
			return open, fmt.Errorf("descriptor %s of LISTEN_FDS: %w", f.Name(), err)
		}
		open = append(open, listener{Listener: l})
	}
	return open, nil
}

// inheritOne closes f. The listener has a copy of the descriptor, and does not remove a socket's file.
func inheritOne(f *os.File) (net.Listener, error) {
	defer f.Close()
	// Another socket would fail at the first accept(2).
	if listens, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens == 0 {
		return nil, errors.Join(errors.New("not a listening socket; write ListenStream= and Accept=no in the socket unit"), err)
	}
	return net.FileListener(f)
}

// take returns the socket with an address of the configuration, and removes it from the list. If there is none, the
// result has no Listener. A TCP address is host:port.
func (i *inherited) take(network, address string) listener {
	for n, l := range *i {
		if l.Listener != nil && l.Addr().Network() == network && sameAddress(l.Addr(), address) {
			(*i)[n] = listener{}
			return l
		}
	}
	return listener{}
}

// withPort returns the address of a socket in the list that has the port of a TCP address, or nil.
func (i inherited) withPort(address string) net.Addr {
	want, err := net.ResolveTCPAddr("tcp", address)
	for _, l := range i {
		if l.Listener == nil || err != nil {
			continue
		}
		if have, ok := l.Addr().(*net.TCPAddr); ok && have.Port == want.Port {
			return have
		}
	}
	return nil
}

// sameAddress reports whether a socket has an address of the configuration. A directory may have two names, as
// /var/run and /run. A socket for all addresses is one for every way to write that.
func sameAddress(have net.Addr, want string) bool {
	switch have := have.(type) {
	case *net.UnixAddr:
		return realDir(have.Name) == realDir(want)
	case *net.TCPAddr:
		want, err := net.ResolveTCPAddr("tcp", want)
		return err == nil && want.Port == have.Port && (want.IP.Equal(have.IP) || anyAddress(want.IP) && anyAddress(have.IP))
	}
	return false
}

// anyAddress reports whether a socket takes connections to all addresses: 0.0.0.0, ::, or no host at all.
func anyAddress(ip net.IP) bool { return ip == nil || ip.IsUnspecified() }

// realDir returns a path without links in its directory.
func realDir(path string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return filepath.Clean(path)
}

// rest returns an error that names a socket that no listener has taken. Its clients would wait for ever.
func (i inherited) rest() error {
	for _, l := range i {
		if l.Listener != nil {
			return fmt.Errorf("the socket %s was passed to the daemon, but no key of listen has this address; write it there, or remove its ListenStream= from the socket unit", l.Addr())
		}
	}
	return nil
}

func (i inherited) close() {
	for _, l := range i {
		if l.Listener != nil {
			l.Close()
		}
	}
}

// remove closes the sockets, and removes the files of those that are the daemon's own.
func (i inherited) remove() {
	for _, l := range i {
		l.removeName(true)
	}
	i.close()
}
