package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/ingress"
)

// listeners holds the open listeners.
type listeners struct {
	all         []listener
	certificate *ingress.Certificate // of the TCP listeners; nil: no TLS
	// The sockets of all callers are inherited. So connections wait in the kernel while no daemon accepts them.
	stay bool
}

// A listener is one listener of the daemon, without TLS.
type listener struct {
	net.Listener
	to service
	// A daemon has made the Unix socket, not systemd or another starter, so the last daemon removes its file.
	own bool
}

// A service names one of the daemon's servers, which a listener belongs to.
type service int

const (
	serviceGRPC service = iota
	serviceMCP
	serviceMetrics
)

// secured returns one of the listeners with TLS, if it has TLS.
func (l listeners) secured(one listener) net.Listener {
	if l.certificate == nil || one.Addr().Network() != "tcp" {
		return one.Listener
	}
	if one.to == serviceGRPC {
		return ingress.Secure(one.Listener, l.certificate, ingress.HTTP2)
	}
	return ingress.Secure(one.Listener, l.certificate, ingress.HTTP1)
}

func (l listeners) close() {
	for _, one := range l.all {
		one.Close()
	}
}

// files returns copies of the sockets. The caller closes them, after an error, too.
func (l listeners) files() (open []*os.File, err error) {
	for _, one := range l.all {
		f, err := copySocket(one.Listener)
		if err != nil {
			return open, err
		}
		open = append(open, f)
	}
	return open, nil
}

// reopen returns listeners of copies of the sockets, which files has made. It changes no socket file and reads no
// certificate, so it works even if these are gone.
func (l listeners) reopen(copies []*os.File) (listeners, error) {
	open := l
	open.all = nil
	for n, f := range copies {
		again, err := net.FileListener(f)
		if err != nil {
			open.close()
			return listeners{}, fmt.Errorf("listener %s: %w", f.Name(), err)
		}
		open.all = append(open.all, listener{again, l.all[n].to, l.all[n].own})
	}
	open.removeNames(true)
	return open, nil
}

// copySocket returns another descriptor of a listener's socket. It does not use the listener's method File: exec.Cmd
// and net.FileListener call Fd of that file, which makes the socket blocking for all of its descriptors. Accept would
// then block in the kernel, where neither a deadline nor Close ends it.
func copySocket(l net.Listener) (*os.File, error) {
	socket, err := l.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var copyErr error
	err = socket.Control(func(s uintptr) { fd, copyErr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, copyErr); err != nil {
		return nil, fmt.Errorf("listener %s: %w", l.Addr(), err)
	}
	return os.NewFile(uintptr(fd), l.Addr().String()), nil
}

// removeNames decides whether the files of the daemon's own Unix sockets are removed when the listeners are closed.
// They must stay while another daemon listens there.
func (l listeners) removeNames(remove bool) {
	for _, one := range l.all {
		one.removeName(remove)
	}
}

func (l listener) removeName(remove bool) {
	if u, ok := l.Listener.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(remove && l.own)
	}
}

// own returns the field own of each listener.
func (l listeners) own() (own []bool) {
	for _, one := range l.all {
		own = append(own, one.own)
	}
	return own
}

// certificate reads the files of listen.tls.
func (c *config) certificate(log *slog.Logger) (*ingress.Certificate, error) {
	return ingress.LoadCertificate(c.Listen.TLS.Certificate, c.Listen.TLS.Key, log)
}

// defaultGroup is the default of listen.unix_group. If the machine does not have this group, the sockets
// keep the daemon's own group.
const defaultGroup = "skillrun"

// socketGroup returns the id of listen.unix_group, or -1 for the daemon's own group. After an error it
// is -1, too.
func (c *config) socketGroup() (gid int, err error) {
	name := c.Listen.UnixGroup
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return -1, fmt.Errorf("%q is not a group of this machine", name)
	}
	return strconv.Atoi(g.Gid)
}

// listen is listenFrom, but an inherited socket without a key in the configuration is an error.
func listen(c config, sockets inherited, log *slog.Logger) (listeners, error) {
	open, err := listenFrom(c, &sockets, log)
	if err == nil {
		err = sockets.rest()
	}
	if err != nil {
		sockets.close()
		open.close()
	}
	return open, err
}

// listenFrom returns every configured listener. It takes a listener from sockets if it is there, and opens the others.
// After an error it closes all that it has opened or taken. The caller closes the result; each server closes the
// listeners that it serves.
// listen.metrics_tcp asks for no credentials: the numbers name tenants, but no skills, callers or paths.
func listenFrom(c config, sockets *inherited, log *slog.Logger) (open listeners, err error) {
	defer func() {
		if err != nil {
			open.close()
		}
	}()
	gid, err := c.socketGroup()
	if err != nil {
		if c.Listen.UnixGroup != defaultGroup {
			return open, fmt.Errorf("listen.unix_group: %w", err)
		}
		log.Info("the group of the sockets does not exist, so only root can open them; run groupadd --system "+defaultGroup, "group", defaultGroup)
	}
	if c.usesTLS() {
		if open.certificate, err = c.certificate(log); err != nil {
			return open, fmt.Errorf("listen.tls: %w", err)
		}
	}
	open.stay = true
	for _, at := range []struct {
		key, network, address string
		to                    service
	}{
		{"listen.unix", "unix", c.Listen.Unix, serviceGRPC},
		{"listen.tcp", "tcp", c.Listen.TCP, serviceGRPC},
		{"listen.mcp_unix", "unix", c.Listen.MCPUnix, serviceMCP},
		{"listen.mcp_tcp", "tcp", c.Listen.MCPTCP, serviceMCP},
		{"listen.metrics_tcp", "tcp", c.Listen.MetricsTCP, serviceMetrics},
	} {
		if at.address == "" {
			continue
		}
		l := sockets.take(at.network, at.address)
		if _, err := os.Lstat(at.address); l.own && errors.Is(err, fs.ErrNotExist) {
			l.Close() // no client can connect to a socket whose file is gone
			l = listener{}
		}
		own := at.network == "unix" && (l.own || l.Listener == nil)
		open.stay = open.stay && (l.Listener != nil || at.to == serviceMetrics)
		with, err := c.listenOn(l.Listener, at.network, at.address, gid, sockets)
		if err != nil {
			return open, fmt.Errorf("%s: %w", at.key, err)
		}
		open.all = append(open.all, listener{with, at.to, own})
	}
	return open, nil
}

// listenOn returns l, or a new listener if l is nil. The sockets of a socket unit get the mode and the group
// of the configuration, too: systemd's default lets every user in. others are the inherited sockets without a key.
func (c *config) listenOn(l net.Listener, network, address string, gid int, others *inherited) (_ net.Listener, err error) {
	mode := fs.FileMode(c.Listen.UnixMode)
	switch {
	case network == "unix" && l == nil:
		return listenUnix(address, mode, gid)
	case l == nil:
		return listenTCP(address, others)
	case network == "unix":
		err = restrict(address, mode, gid)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// listenTCP listens on an address that validate has checked.
func listenTCP(address string, others *inherited) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		if have := others.withPort(address); have != nil {
			return nil, fmt.Errorf("%s: the daemon has inherited a socket with this port and another address, %s; restart the daemon to change the address, or change the socket unit", address, have)
		}
		return nil, fmt.Errorf("%s: the port is in use; stop the program that uses it, or choose another port", address)
	}
	return l, err
}

// listenUnix listens on a Unix socket. It replaces the socket of a daemon that died, but
// refuses if a daemon answers there. The directory and the mode of the socket restrict the users that may
// connect (unix(7)); the credentials of the connection identify the caller.
func listenUnix(path string, mode fs.FileMode, gid int) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s: exists and is not a socket; remove it or choose another path", path)
	default:
		// A socket without a listener refuses connections, ECONNREFUSED (connect(2)). It stays as
		// a file after the end of its daemon.
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, fmt.Errorf("%s: another daemon answers there; stop it or choose another path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// bind(2) gives the file the mode of the socket's inode. Mode 0 denies every user (except
	// root) the socket until Chmod has set its mode.
	closed := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmodErr error
		err := c.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), 0) })
		return errors.Join(err, chmodErr)
	}}
	l, err := closed.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := restrict(path, mode, gid); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// restrict sets the users who can connect to a Unix socket. With -1, chown(2) does not change the id.
func restrict(path string, mode fs.FileMode, gid int) error {
	return errors.Join(os.Chown(path, -1, gid), os.Chmod(path, mode))
}
